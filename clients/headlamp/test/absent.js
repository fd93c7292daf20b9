// Stands for each dependency of Headlamp that isn't installed, because the pages of the plugin don't show what uses it. Whatever is
// imported from it is a function with all properties. esbuild copies the own properties of a module, so these are those of its
// prototype.
const absent = new Proxy(function () {}, { get: (_, name) => (typeof name === "symbol" || name.startsWith("__") ? undefined : absent) });
module.exports = Object.create(new Proxy({}, { get: (_, name) => (name === "__esModule" ? undefined : absent) }));
