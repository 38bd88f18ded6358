package main

import (
	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// watching is a store on a server that may keep it from hearing of other replicas.
type watching interface{ WarnOfWatch(warn func(error)) }

// warnOfWatch has a line written when a store can't tell waiting requests that the one they
// wait for has ended.
func warnOfWatch(s dedup.Store, log *zap.Logger) {
	if w, ok := below[watching](s); ok {
		w.WarnOfWatch(func(err error) {
			log.Warn("the store tells nothing of other replicas: requests that wait for one of theirs ask every few seconds", zap.Error(err))
		})
	}
}

// below finds what a store, or one that it is wrapped around, can do besides.
func below[T any](s dedup.Store) (T, bool) {
	for {
		if found, ok := s.(T); ok {
			return found, true
		}
		outer, wraps := s.(interface{ Unwrap() dedup.Store })
		if !wraps {
			var none T
			return none, false
		}
		s = outer.Unwrap()
	}
}
