package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// found waits until the look-up shows a state.
func (b *tab) found(state string) {
	b.t.Helper()
	b.says("#found .pill", state)
}

// A key is found by what its caller sends, and by its hash; an unknown one is released,
// with the token alone, and its next request is executed, once.
func TestLookUpAndRelease(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p := start(t, setup{upstream: u.URL, routes: routes})
	b := open(t, p.control, "/", refused+`|network: Failed to load resource: the server responded with a status of 400 \(Bad Request\)`)
	p.sends(t, 502, "/api/payments", "drop-9", "{}")
	p.sends(t, 409, "/api/payments", "drop-9", "{}")
	p.sends(t, 201, "/api/payments", "pay-9", "{}")
	b.signIn()
	b.until("document.querySelectorAll('#keys li').length === 1")
	hash := js[string](b, "document.querySelector('#keys .hash').textContent")

	b.do(selects("#route", "payments"))
	b.types("#key", "pay-9")
	b.click("#by-key button")
	b.says("#found .error", "X-Account") // who called is part of the name
	b.types("input[name=X-Account]", "acme")
	b.click("#by-key button")
	b.found("completed")
	b.says("#found", "Answered with status 201")
	b.types("input[name=X-Account]", "somebody")
	b.click("#by-key button")
	b.found("free")
	b.types("input[name=X-Account]", "acme")
	b.types("#key", "drop-9")
	b.click("#by-key button")
	b.found("unknown")
	if got := js[string](b, "document.querySelector('#found .hash').textContent"); got != hash {
		t.Errorf("by its name %s, in the list %s", got, hash)
	}
	b.types("#hash", strings.Repeat("x", 42))
	b.click("#by-hash button")
	b.says("#found .error", "no key_hash")
	b.types("#hash", hash)
	b.click("#by-hash button")
	b.found("unknown")
	b.sized(375, 812)
	b.shot("found-375")
	b.sized(1280, 900)

	// Who changes their mind changes nothing.
	b.click("#found button.danger")
	b.until("document.querySelector('#release').open")
	b.shot("release")
	b.sized(375, 812)
	b.shot("release-375")
	b.sized(1280, 900)
	b.key("Escape")
	b.until("!document.querySelector('#release').open && document.activeElement === document.querySelector('#found button.danger')")
	for _, a := range b.changing() {
		if a != "POST /api/lookup" {
			t.Errorf("looking did %s", a)
		}
	}

	// A token that is no longer right is asked for again; a wrong one is refused.
	p.setToken(t, "another-"+token)
	b.until("!document.querySelector('#signin').hidden")
	b.says("#token-error", "The token was refused")
	b.types("#token", "wrong-"+token)
	b.click("#token-form button")
	b.until("document.querySelector('#token').getAttribute('aria-invalid') === 'true' && document.activeElement.id === 'token'")
	b.shot("wrong-token")
	if n := u.executed("drop-9"); n != 1 {
		t.Fatalf("executed %d times", n)
	}
	b.types("#token", "another-"+token)
	b.click("#token-form button")
	b.until("!document.querySelector('#open').hidden")

	b.found("unknown") // where it was
	b.click("#found button.danger")
	b.click("#release-yes")
	b.says("#found .done", "Released")
	b.found("free")
	b.until("document.querySelectorAll('#keys li').length === 0")
	b.shot("released")
	p.sends(t, 201, "/api/payments", "drop-9", "{}")
	if status, replayed := p.send(t, "/api/payments", "drop-9", "{}"); status != 201 || !replayed {
		t.Errorf("the retry after it: %d, replayed %v", status, replayed)
	}
	if n := u.executed("drop-9"); n != 2 {
		t.Errorf("executed %d times in all, want 2", n)
	}
	if got := b.changing(); !slices.Contains(got, "POST /api/keys/"+hash+"/release") {
		t.Errorf("requests: %v", got)
	}
}

// A key in flight is only released by somebody who was told what that means, and without a
// token nobody is offered to release anything.
func TestReleaseInFlightAndReadOnly(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p := start(t, setup{upstream: u.URL, routes: routes})
	b := open(t, p.control, "/", refused)
	b.signIn()
	for i := range 1100 { // more than one page of the API
		p.sends(t, 201, "/api/payments", fmt.Sprint("pay-", i), "{}")
	}
	p.hangs(t, u, "/api/payments", "hang-9")
	b.types("#key", "hang-9")
	b.types("input[name=X-Account]", "acme")
	b.click("#by-key button")
	b.found("in flight")
	row := "#keys li[data-hash=" + js[string](b, "JSON.stringify(document.querySelector('#found .hash').textContent)") + "]"
	b.says(row, "Being executed") // others were in flight a moment ago
	b.click(row + " button")
	b.until("document.querySelector('#hash').value !== ''")
	b.found("in flight")
	b.click("#found button.danger")
	b.says("#release-text", "twice")
	b.click("#release-no")
	b.until("!document.querySelector('#release').open")
	if got := b.changing(); !slices.Equal(got, []string{"POST /api/lookup"}) {
		t.Errorf("requests: %v", got)
	}

	p = start(t, setup{upstream: u.URL, routes: routes, open: true})
	b = open(t, p.control, "/", "")
	p.sends(t, 502, "/api/orders/1", "drop-8", "{}")
	b.says("#notice", "only shows")
	b.until("document.querySelectorAll('#keys li').length === 1")
	b.click("#keys button")
	b.found("unknown")
	b.says("#found", "control.token_file")
	if n := js[int](b, "document.querySelectorAll('#found button').length"); n != 0 {
		t.Errorf("%d buttons", n)
	}
	b.types("#key", "drop-8")
	b.do(selects("#route", "orders"))
	b.click("#by-key button")
	b.found("unknown") // by name too: that changes nothing
	b.shot("read-only")
}

// A page of another origin in the same browser releases nothing, whatever it sends, not
// even if it knew the token; nor does it learn anything, nor frame the page.
func TestAnotherOrigin(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	for _, withToken := range []bool{true, false} {
		p := start(t, setup{upstream: u.URL, routes: routes, open: !withToken})
		key := fmt.Sprintf("drop-%v", withToken)
		p.sends(t, 502, "/api/orders/7", key, "{}")
		owner := open(t, p.control, "/", refused)
		if withToken {
			owner.signIn()
		}
		owner.until("document.querySelectorAll('#keys li').length === 1")
		hash := js[string](owner, "document.querySelector('#keys .hash').textContent")

		evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<link rel=icon href=data:,><iframe name=into></iframe><iframe id=framed src="%[1]s/"></iframe>
<form target=into method=post action="%[1]s/api/keys/%[2]s/release"><input name=force value=1></form>
<form target=into method=get action="%[1]s/api/keys/%[2]s/release"></form>`, p.control, hash)
		}))
		t.Cleanup(evil.Close)
		from := evil.URL // the same site, another origin; and another site
		if withToken {
			from = strings.Replace(from, "127.0.0.1", "localhost", 1)
		}
		b := openAnywhere(t, from)
		b.until("document.readyState === 'complete'")
		js[bool](b, `(async () => {
			for (const form of document.forms) await new Promise((done) => {
				document.querySelector("[name=into]").onload = done;
				form.submit();
			});
			return true;
		})()`)
		tries := js[[]string](b, fmt.Sprintf(`(async () => {
			const told = [];
			for (const options of [
				{method: "POST", credentials: "include"},
				{method: "POST", credentials: "include", mode: "no-cors"},
				{method: "POST", headers: {Authorization: "Bearer %[3]s"}},
				{method: "DELETE", credentials: "include"},
				{method: "GET", credentials: "include"},
			]) for (const path of ["/api/keys/%[2]s/release", "/api/keys/%[2]s", "/api/status", "/drain", "/api/lookup"]) {
				try {
					const answer = await fetch("%[1]s" + path, options);
					if (answer.type !== "opaque") told.push(options.method + " " + path + " " + answer.status);
				} catch { /* the browser tells nothing: so it should be */ }
			}
			return told;
		})()`, p.control, hash, token))
		for _, told := range tries {
			t.Errorf("another origin is told: %s", told)
		}
		b.shot(fmt.Sprintf("another-origin-%v", withToken))

		p.sends(t, 409, "/api/orders/7", key, "{}") // still unknown
		if n := u.executed(key); n != 1 {
			t.Errorf("executed %d times", n)
		}
		if log := p.log.String(); strings.Contains(log, "draining") || strings.Contains(log, "operator removed") {
			t.Errorf("the log:\n%s", log)
		}
	}
}
