// Moves a replica to the column of another broker, with the mouse or by keyboard. The form below the
// grid does the same without scripts: this file fills it in and sends it.

const form = document.getElementById("place-form");
const status = document.getElementById("grid-status");
const isFree = (cell) => !cell.querySelector("[data-chip]");

// Without scripts a replica is only a word in the table.
for (const chip of document.querySelectorAll("[data-chip]")) {
  chip.draggable = true;
  chip.tabIndex = 0;
  chip.setAttribute("role", "button");
  chip.setAttribute("aria-pressed", "false");
  chip.setAttribute("aria-label", chip.dataset.chip);
}
document.getElementById("grid-help").hidden = false;

let taken = null; // the cell of the replica that is being moved
let target = null;

const aim = (cell) => {
  if (target) target.classList.remove("target");
  target = cell;
  if (target) target.classList.add("target");
};

const drop = () => {
  if (taken) taken.querySelector("[data-chip]").setAttribute("aria-pressed", "false");
  taken = null;
  aim(null);
};

const take = (cell) => {
  drop();
  taken = cell;
  cell.querySelector("[data-chip]").setAttribute("aria-pressed", "true");
};

const put = (cell) => {
  const { partition, broker } = taken.dataset;
  form.elements.partition.value = partition;
  form.elements.from.value = broker;
  form.elements.to.value = cell.dataset.broker;
  status.textContent = `partition ${partition}: from broker ${broker} to broker ${cell.dataset.broker}`;
  form.requestSubmit();
};

const canDrop = (cell) => taken && cell && cell.dataset.partition === taken.dataset.partition && isFree(cell);

document.addEventListener("dragstart", (event) => {
  const chip = event.target.closest?.("[data-chip]");
  if (!chip) return;
  take(chip.closest("td"));
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", chip.dataset.chip);
});
document.addEventListener("dragover", (event) => {
  const cell = event.target.closest?.("td[data-partition]");
  if (!canDrop(cell)) return;
  event.preventDefault();
  aim(cell);
});
document.addEventListener("drop", (event) => {
  const cell = event.target.closest?.("td[data-partition]");
  if (!canDrop(cell)) return;
  event.preventDefault();
  put(cell);
});
document.addEventListener("dragend", drop);

const step = (direction) => {
  const cells = [...document.querySelectorAll(`td[data-partition="${taken.dataset.partition}"]`)].filter(isFree);
  if (!cells.length) {
    status.textContent = "every broker has a replica of this partition";
    return;
  }
  const place = target ? cells.indexOf(target) + direction : direction > 0 ? 0 : cells.length - 1;
  aim(cells[(place + cells.length) % cells.length]);
  status.textContent = `to broker ${target.dataset.broker}: Enter puts it there`;
};

document.addEventListener("keydown", (event) => {
  const chip = event.target.closest?.("[data-chip]");
  if (!chip) return;
  const cell = chip.closest("td");
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (taken === cell && target) put(target);
    else {
      take(cell);
      status.textContent = `partition ${cell.dataset.partition}, broker ${cell.dataset.broker}: the arrow keys choose a broker`;
    }
  } else if (taken === cell && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    event.preventDefault();
    step(event.key === "ArrowRight" ? 1 : -1);
  } else if (event.key === "Escape") {
    drop();
    status.textContent = "";
  }
});
