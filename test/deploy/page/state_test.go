package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"

	"idemproxy/test/deploy/process"
)

// What is wrong is said where one looks: draining, the store, a proxy that is gone.
func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	down := `{type: redis, timeout: 200ms, redis: {url: "redis://` + process.FreeAddress(t) + `/0"}}`
	p := start(t, setup{upstream: u.URL, routes: "[]", store: down})
	b := open(t, p.control, "/", refused+`|network: Failed to load resource: (the server responded with a status of 503 \(Service Unavailable\)|net::ERR_CONNECTION_REFUSED)`)
	b.until("!document.querySelector('#signin').hidden")
	b.shot("signin")
	b.sized(375, 812)
	b.shot("signin-375")
	b.sized(1280, 900)
	b.click("#token-form button")
	b.says("#token-error", "Type the token.")
	b.signIn()
	b.says("#routes .empty", "No route is configured")
	b.says("#keys-note", "can't be listed. The store can't be used")
	b.says("#glance-unknown", "not known")
	b.shot("store-down")
	if status := p.ask(t, "POST", "/drain"); status != 200 {
		t.Fatalf("drain: %d", status)
	}
	b.says("#health", "draining")
	b.says("#notice", "draining")
	b.shot("draining")
	p.kill()
	b.says("#health", "not reached")
	b.says("#notice", "has not answered since")
	b.shot("not-reached")
	b.sized(375, 812)
}

// Everything is reached, seen and done by keyboard, and has a name for who can't see it.
func TestKeyboardAndNames(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p := start(t, setup{upstream: u.URL, routes: routes})
	b := open(t, p.control, "/", refused)
	p.sends(t, 502, "/api/orders/5", "drop-5", "{}")
	b.until("document.activeElement.id === 'token'") // nothing else to do
	b.keys(token)
	b.key("Enter")
	b.until("document.querySelectorAll('#keys li').length === 1")
	b.until("document.activeElement.id === 'lock'")

	var order []string
	for range 30 {
		b.key("Tab")
		at := js[string](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			if (e === document.body) return "";
			const seen = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && r.width > 0 && r.top >= 0 && r.bottom <= innerHeight;
			return (seen ? "" : "UNSEEN ") + (e.id || e.name || e.closest("form")?.id + " button" || e.textContent);
		})()`)
		if at == "" {
			break
		}
		order = append(order, at)
	}
	// The card of a route has its rule to open; the list of keys a button each.
	want := []string{"undefined button", "undefined button", "undefined button", "undefined button", "undefined button", "route", "key", "identity-0", "identity-1", "by-key button", "hash", "by-hash button"}
	if !slices.Equal(order, want) {
		t.Errorf("tab order:\n%q, want\n%q", order, want)
	}

	// Look up and release, by keys alone.
	js[bool](b, "document.querySelector('#route').focus() || true")
	b.keys("orders")
	b.until("document.querySelectorAll('#identity input').length === 0")
	b.key("Tab")
	b.keys("drop-5")
	b.key("Enter")
	b.found("unknown")
	b.until("document.activeElement.id === 'key'")
	for range 4 {
		b.key("Tab")
	}
	b.until("document.activeElement.textContent === 'Release…'")
	b.shot("focus")
	b.key("Enter")
	b.until("document.activeElement.id === 'release-no'") // the harmless one
	b.key("Tab")
	b.key("Enter")
	b.says("#found .done", "Released")

	b.named(t)
	b.dark(true)
	b.contrast(t)
	b.dark(false)
	b.contrast(t)
}

// named checks what the accessibility tree has: every control by a name, and the page's parts.
func (b *tab) named(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	tree := called(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		var role, name string
		_ = json.Unmarshal(n.Role.Value, &role)
		if n.Name != nil {
			_ = json.Unmarshal(n.Name.Value, &name)
		}
		seen[role+" "+name] = true
		if name == "" && slices.Contains([]string{"button", "textbox", "combobox", "link", "image", "dialog", "region", "DisclosureTriangle"}, role) {
			t.Errorf("a %s without a name", role)
		}
	}
	for _, want := range []string{
		"heading idemproxy", "heading Traffic", "heading payments", "region Traffic", "region Look up a key", "region Keys in flight and unknown", "region At a glance",
		"combobox Route", "textbox Key, as the caller sends it in Idempotency-Key", "textbox Or the key_hash from a log line", "button Forget the token",
		"rowheader executed", "columnheader a second",
	} {
		if !seen[want] {
			t.Errorf("the accessibility tree has no %q", want)
		}
	}
}

// contrast checks that every text stands out from what is behind it: WCAG 2, 1.4.3, AA.
func (b *tab) contrast(t *testing.T) {
	t.Helper()
	poor := js[[]string](b, `(() => {
		const parts = (c) => (c.match(/[\d.]+/g) || []).map(Number);
		const light = (c) => parts(c).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
			.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
		const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (parts(c)[3] !== 0) return c; } return "rgb(255,255,255)"; };
		const poor = [];
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement;
			if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.tagName === "NOSCRIPT") continue;
			const s = getComputedStyle(e), ink = light(e instanceof SVGElement ? s.fill : s.color), ground = light(behind(e));
			const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
			if (ratio < 4.5) poor.push(ratio.toFixed(1) + " " + e.tagName + "." + e.className + " " + walk.currentNode.data.slice(0, 30));
		}
		return poor;
	})()`)
	for _, p := range poor {
		t.Error(fmt.Sprint("too little contrast: ", p))
	}
}
