module idemproxy

go 1.26
