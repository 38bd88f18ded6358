package store_test

import "idemproxy/internal/dedup"

// bare is the store inside what Open returns.
func bare[S dedup.Store](s dedup.Store) S {
	return s.(interface{ Unwrap() dedup.Store }).Unwrap().(S)
}
