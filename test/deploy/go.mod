// The tests of what people deploy (Dockerfile, compose files, chart), apart from the
// program's own module so that the types of Kubernetes and the like never reach it.
module idemproxy/test/deploy

go 1.26.0

require (
	github.com/chromedp/cdproto v0.160.1
	github.com/chromedp/chromedp v0.23.1
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
