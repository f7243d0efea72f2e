// Begin. `window.undertow` lets tests, and the curious, look at what is drawn.

window.undertow = Object.freeze({
  names: NAMES, times: DATA.times, state, camera, distance, nearest, pairSeries, ellipse, lift, chance,
  get pictures() { return pictures; },
  labels: () => labels.shown.map(({ i, x0, x1, y0, y1 }) => ({ name: NAMES[i], x0, x1, y0, y1 })),
  dot: (i) => ({ x: screenX(now.x[i]), y: screenY(now.y[i]), weight: now.weight[i] }),
  draw,
});

// A canvas that changes its size is empty: it is drawn at once, before anybody sees that.
const refit = () => { if (resize()) draw(); };
resize();
new ResizeObserver(refit).observe(canvas.parentElement);
window.addEventListener("resize", refit); // another screen may have finer pixels
setTheme(system.matches);
for (const what of ["time", "playing", "pinned"]) for (const listener of listeners) listener(what);
showSuggested();
redraw();
