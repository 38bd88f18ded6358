package proxy

import (
	"embed"
	"net/http"
)

// pageFiles are the page of the control listener. They hold nothing of this process: what
// the page shows it asks the API for, with the token that its reader types.
//
//go:embed control_page
var pageFiles embed.FS

// pagePolicy lets the page load and ask only what is here.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageFile is the file of the page that a path names, and its media type; "" for none.
func pageFile(path string) (name, mediaType string) {
	switch path {
	case "/":
		return "index.html", "text/html; charset=utf-8"
	case "/page.css":
		return "page.css", "text/css; charset=utf-8"
	case "/icon.svg":
		return "icon.svg", "image/svg+xml"
	}
	for _, script := range []string{"page.js", "keys.js", "routes.js", "plot.js", "words.js"} {
		if path == "/"+script {
			return script, "text/javascript; charset=utf-8"
		}
	}
	return "", ""
}

// isPage reports whether a request is for the page itself, which needs no token.
func isPage(r *http.Request) bool {
	name, _ := pageFile(r.URL.Path)
	return name != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func writePage(w http.ResponseWriter, r *http.Request) {
	name, mediaType := pageFile(r.URL.Path)
	content, _ := pageFiles.ReadFile("control_page/" + name) // it is there, or this was not built
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, _ = w.Write(content)
}
