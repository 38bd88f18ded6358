// The tests of what people deploy (Dockerfile, compose files, chart), apart from the
// program's own module so that the types of Kubernetes and the like never reach it.
module idemproxy/test/deploy

go 1.26.0
