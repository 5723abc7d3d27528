// Browsers start no workers for pages opened from a folder. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.ready = new Promise((resolve) => {
        this.frame = document.createElement("iframe");
        this.frame.hidden = true;
        document.body.appendChild(this.frame);
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => {
          const message = new MessageEvent("message", { data });
          this.dispatchEvent(message);
          if (this.onmessage) this.onmessage(message);
        };
        inside.importScripts = (...urls) =>
          Promise.all(urls.map((url) => new Promise((loaded, failed) => {
            const script = inside.document.createElement("script");
            Object.assign(script, { src: url, onload: loaded, onerror: failed });
            inside.document.body.appendChild(script);
          })));
        inside.importScripts(url).then(() => resolve(inside));
      });
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
