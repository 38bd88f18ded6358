package store_test

import (
	"errors"

	"idemproxy/internal/dedup"
)

// bare is the store inside what Open returns.
func bare[S dedup.Store](s dedup.Store) S {
	return s.(interface{ Unwrap() dedup.Store }).Unwrap().(S)
}

var errNotYet = errors.New("not yet")

func isNotApplied(err error) bool { return errors.Is(err, dedup.ErrNotApplied) }
