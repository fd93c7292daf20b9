package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var screenshots = flag.String("screenshots", "", "write the screenshots of the documentation to this folder")

// patience is how long the tests wait for a condition. Other tests may occupy all cores.
const patience = 3 * time.Minute

// browser is a Chromium with one page, and the server of the page for the groups of a store.
type browser struct {
	t     *testing.T
	ctx   context.Context
	store *served.Store
	// actions are what the user may do.
	actions *served.Actions
	port    int
	server  *http.Server
	done    chan struct{}

	mu sync.Mutex
	// errors are those on the page's console, such as exceptions and violations of the policy.
	errors []string
}

// serve serves the store, at the same port as before.
func (b *browser) serve() {
	b.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", b.port))
	must.Succeed(b.t, err)
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		b.port = address.Port
	}
	handler := served.NewHandler(b.store, b.port, b.actions, "https://grafana.example.org")
	b.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	b.done = make(chan struct{})
	go func() {
		_ = b.server.Serve(listener) // It returns when stop closes it.
		close(b.done)
	}()
}

func (b *browser) stop() {
	_ = b.server.Close()
	<-b.done
}

// start starts a browser. Without Chromium it skips the test; in CI it fails.
func start(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must not skip tests, but chromium is missing: run hack/packages page as root")
		}
		t.Skip("chromium isn't in PATH (see hack/packages)")
	}
	b := &browser{t: t, store: served.NewStore()}
	b.serve()
	t.Cleanup(b.stop)
	profile, err := os.MkdirTemp("", "dashboard")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) }) // Chromium may still write to it when it exits.
	options := append(slices.Clip(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(patience), chromedp.UserDataDir(profile), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("no-proxy-server", true))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	// It reports events that are newer than the driver.
	ctx, cancelPage := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(cancelPage)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // It waits until Chromium has exited.
	b.ctx = ctx
	chromedp.ListenTarget(ctx, b.observe)
	b.run("start the browser", cdplog.Enable(), runtime.Enable())
	return b
}

// observe collects errors on the console.
func (b *browser) observe(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Error()
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			text = "console:"
			for _, argument := range e.Args {
				text += " " + cmp.Or(argument.Description, string(argument.Value))
			}
		}
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errors = append(b.errors, text)
	}
}

// takeErrors returns the errors on the console since the last call.
func (b *browser) takeErrors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	errors := b.errors
	b.errors = nil
	return errors
}

func (b *browser) run(what string, actions ...chromedp.Action) {
	b.t.Helper()
	// The browser itself ends with the context of its first run.
	ended := time.AfterFunc(patience, func() { b.t.Logf("%s: timed out", what); _ = chromedp.Cancel(b.ctx) })
	defer ended.Stop()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatalf("cannot %s: %v; console: %v", what, err, b.takeErrors())
	}
}

// open opens a view of the page.
func (b *browser) open(hash string) {
	b.t.Helper()
	b.run("open "+hash, chromedp.Navigate("about:blank"),
		chromedp.Navigate(fmt.Sprintf("http://127.0.0.1:%d/%s", b.port, hash)))
}

// await waits until an expression in the page is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var ok bool
		b.run("evaluate "+expression, chromedp.Evaluate("Boolean("+expression+")", &ok))
		if ok {
			return
		}
		if time.Now().After(deadline) {
			var text string
			b.run("read the page", chromedp.Evaluate("document.body.innerText.slice(0, 2000)", &text))
			b.t.Fatalf("timed out waiting for %s; console: %v; the page has\n%s", expression, b.takeErrors(), text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// click clicks the element that a selector matches. It doesn't use the element's position,
// which may change before the click arrives.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf("document.querySelector(%q)", selector))
	b.run("click "+selector, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).click()", selector), nil))
}

// text returns the text of the first element that a selector matches.
func (b *browser) text(selector string) (text string) {
	b.t.Helper()
	b.run("read "+selector, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &text))
	return text
}

// device sets the size of the screen and the color scheme.
func (b *browser) device(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	scale, phone := 1.0, width < 600
	if phone {
		scale = 2
	}
	b.run("set the device", emulation.SetDeviceMetricsOverride(width, height, scale, phone),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}))
}

// screenshot writes the page to a file, if requested. A page must not be wider than the screen.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	b.await("document.documentElement.scrollWidth <= innerWidth")
	if *screenshots == "" {
		return
	}
	var image []byte
	b.run("take a screenshot", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		image, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	if !bytes.HasPrefix(image, []byte("\x89PNG")) {
		b.t.Fatalf("got a screenshot of %d bytes, want a PNG", len(image))
	}
	must.Succeed(b.t, os.WriteFile(filepath.Join(*screenshots, name), image, 0o600))
}

// ignoreErrors forgets the errors on the console that have one of these texts.
func (b *browser) ignoreErrors(texts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = slices.DeleteFunc(b.errors, func(text string) bool {
		return slices.ContainsFunc(texts, func(known string) bool { return strings.Contains(text, known) })
	})
}

// expectNoErrors fails the test if there are errors on the console.
func (b *browser) expectNoErrors() {
	b.t.Helper()
	if errors := b.takeErrors(); len(errors) > 0 {
		b.t.Errorf("got errors on the console:\n%s", strings.Join(errors, "\n"))
	}
}
