// Package dashboard tests the page of `kubectl conclave dashboard` and the plugin for Headlamp in a headless Chromium.
package dashboard
