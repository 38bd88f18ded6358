// Package page tests the page of the control listener in a real Chromium: the built
// binary, a real upstream, and what a person sees and does. `go test -artifacts
// -outputdir DIR` keeps the screenshots. It imports nothing of the program.
package page
