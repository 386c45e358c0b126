// Replaces the main part of the page each time that the server sends a new one.
const main = document.querySelector("main");
const source = new EventSource(document.body.dataset.live);
source.onopen = () => document.body.classList.remove("is-lost");
source.onerror = () => document.body.classList.add("is-lost");
source.onmessage = (event) => { main.innerHTML = event.data; };
