package store_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis writes a line for every failed dial
	if path := os.Getenv(fileClaimer); path != "" {
		claimForever(path)
	}
	os.Exit(m.Run())
}
