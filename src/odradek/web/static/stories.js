// Steps of a story without loading the page again: the slider, the arrow keys, Home and End,
// back and next.
// Without this file the links and the form do the same.
const wanted = { step: 0, isLoading: false };

async function show(step) {
  const story = document.getElementById("story");
  wanted.step = Math.min(Math.max(step, 1), Number(story.dataset.steps));
  if (wanted.isLoading) return;
  wanted.isLoading = true;
  try {
    while (wanted.step !== Number(document.getElementById("story").dataset.step)) {
      const url = `${location.pathname}?step=${wanted.step}`;
      const answer = await fetch(url, { headers: { accept: "text/html" } });
      if (!answer.ok) break;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const slider = document.getElementById("step");
      Idiomorph.morph(document.getElementById("story"), page.getElementById("story"), {
        ignoreActiveValue: true,
      });
      slider.value = document.getElementById("story").dataset.step;
      history.replaceState(null, "", url);
    }
  } finally {
    wanted.isLoading = false;
  }
}

const now = () => wanted.step || Number(document.getElementById("story").dataset.step);

document.addEventListener("input", (event) => {
  if (event.target.id === "step") show(Number(event.target.value));
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("#steps a, #all-steps a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  show(Number(new URL(link.href).searchParams.get("step")));
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey) return;
  if (event.key === "ArrowRight") show(now() + 1);
  else if (event.key === "ArrowLeft") show(now() - 1);
  else if (event.key === "Home") show(1);
  else if (event.key === "End") show(Infinity);
});
