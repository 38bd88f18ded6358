package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A tab is one of the browser, and all that it complained about and asked for.
type tab struct {
	t       *testing.T
	context context.Context
	origin  string
	allowed *regexp.Regexp // of complaints, that are part of a test

	mu         sync.Mutex
	anywhere   bool // it may ask other origins
	complaints []string
	asked      []string // "METHOD URL"
}

// open opens a page. At the end it must not have complained, nor asked any other origin.
func open(t *testing.T, origin, path, allowed string) *tab {
	t.Helper()
	if suite.browser == nil {
		t.Skip("no chromium")
	}
	ctx, end := chromedp.NewContext(suite.browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, context: ctx, origin: origin, allowed: regexp.MustCompile("(?s)^(" + allowed + ")$")}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.shot("failed")
		}
		end()
		b.check()
	})
	called(b, network.Enable, network.EnableParams{})
	called(b, log.Enable, cdp.Empty{})
	called(b, runtime.Enable, cdp.Empty{})
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(origin+path))
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelVerbose {
			b.complaints = append(b.complaints, fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
		}
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s", e.Type))
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *page.EventJavascriptDialogOpening:
		b.complaints = append(b.complaints, "dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.Method+" "+e.Request.URL)
	}
}

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		if !b.allowed.MatchString(c) {
			b.t.Errorf("the browser complains: %s", c)
		}
	}
	for _, a := range b.asked {
		if _, url, _ := strings.Cut(a, " "); !b.anywhere && !strings.HasPrefix(url, b.origin+"/") {
			b.t.Errorf("the page asks another origin: %s", a)
		}
	}
}

// changing are the requests so far that are no GET.
func (b *tab) changing() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.asked {
		if !strings.HasPrefix(a, "GET ") {
			all = append(all, strings.Replace(a, b.origin, "", 1))
		}
	}
	return all
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.context, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// called sends a command of the browser's protocol.
func called[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.context, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// js evaluates an expression; promises are awaited.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.context, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true. It is asked from outside: what chromedp would
// put into the page to ask, the page's policy refuses.
func (b *tab) until(expression string) {
	b.t.Helper()
	eventually(b.t, expression, func() bool { return js[bool](b, expression) })
}

// says waits until an element shows a text.
func (b *tab) says(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("(document.querySelector(%s)?.innerText || '').includes(%s)", quote(selector), quote(text)))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// types replaces what a field holds.
func (b *tab) types(selector, text string) {
	b.t.Helper()
	js[bool](b, "document.querySelector("+quote(selector)+").select() || true")
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// signIn opens the page with the token.
func (b *tab) signIn() {
	b.t.Helper()
	b.until("!document.querySelector('#signin').hidden")
	b.types("#token", token)
	b.click("#token-form button")
	b.until("!document.querySelector('#open').hidden")
	b.until("document.querySelector('#keys-note').textContent !== ''")
}

// sized shows the page as wide, and checks that nothing is wider.
func (b *tab) sized(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	wide := js[[]string](b, `(async () => {
		await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		const most = document.documentElement.clientWidth;
		const all = [...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > most + 0.5);
		if (document.documentElement.scrollWidth > most) all.push(document.documentElement);
		return all.map((e) => e.tagName + "." + e.className + "#" + e.id);
	})()`)
	if len(wide) > 0 {
		b.t.Errorf("wider than %d: %v", width, wide)
	}
}

func (b *tab) dark(yes bool) {
	b.t.Helper()
	scheme := "light"
	if yes {
		scheme = "dark"
	}
	called(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// shot keeps a picture in the test's output: of the whole page, or, with a dialog, of what
// is in the window.
func (b *tab) shot(name string) []byte {
	b.t.Helper()
	take := chromedp.FullScreenshot(100)
	if js[bool](b, "document.querySelector('dialog[open]') !== null") {
		take = chromedp.CaptureScreenshot()
	}
	png, err := chromedp.Run(b.context, take)
	if err != nil {
		b.t.Errorf("screenshot: %v", err)
		return nil
	}
	file := filepath.Join(b.t.ArtifactDir(), name+".png")
	if err := os.WriteFile(file, png, 0o600); err != nil {
		b.t.Error(err)
	}
	return png
}

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// selects chooses an option as a person does.
func selects(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(selector), value)
}

// keys types where the focus is.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// key presses one key that writes nothing.
func (b *tab) key(name string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(map[string]string{"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape}[name]))
}

// openAnywhere opens a page that may ask and complain as it likes.
func openAnywhere(t *testing.T, url string) *tab {
	t.Helper()
	b := open(t, url, "/", ".*")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.anywhere = true
	return b
}
