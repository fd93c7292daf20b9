// Package dashboard tests the page of `kubectl conclave dashboard` in a headless Chromium. It is a module of
// its own, so that users of the main module don't download the driver of the browser.
package dashboard
