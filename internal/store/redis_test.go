package store_test

import (
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// openRedis opens a store on the server at addr, under a prefix of its own.
func openRedis(t *testing.T, addr string, change func(*store.Config)) *store.Redis {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Type = "redis"
	cfg.KeyPrefix = "idem:" + string(dedup.NewToken()) + ":"
	cfg.Timeout = 5 * time.Second // tests of timeouts set their own; a slow machine is none
	cfg.Redis.URL = store.Secret("redis://" + addr)
	if change != nil {
		change(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return bare[*store.Redis](s)
}

func TestRedisConforms(t *testing.T) {
	server := storetest.StartRedis(t)
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Harness {
			prefix := "idem:" + string(dedup.NewToken()) + ":"
			return storetest.Harness{
				Store: openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = prefix }),
				Peer:  openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = prefix }),
				Plant: func(t *testing.T, id dedup.ID, raw []byte) {
					t.Helper()
					if err := server.Client().Set(t.Context(), prefix+string(id), raw, time.Hour).Err(); err != nil {
						t.Fatal(err)
					}
				},
			}
		})
	})
}

// Scripts that the server forgets, at a restart or by SCRIPT FLUSH, are sent again.
func TestRedisSendsForgottenScriptsAgain(t *testing.T) {
	server := storetest.StartRedis(t)
	for name, change := range map[string]func(*store.Config){
		"plain": nil, "waiting": func(c *store.Config) { c.Redis.WaitReplicas, c.Timeout = 1, 200*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			s := openRedis(t, server.Addr(), change)
			if name == "waiting" { // without replicas the claim comes and goes, but the script runs
				server.Client().ScriptFlush(t.Context())
				_, err := s.Claim(t.Context(), request(time.Hour))
				if err == nil || strings.Contains(err.Error(), "NOSCRIPT") {
					t.Fatalf("Claim: error %v, want one about replicas", err)
				}
				return
			}
			req := request(time.Hour)
			mustClaim(t, s, req, dedup.StateAcquired)
			server.Client().ScriptFlush(t.Context())
			mustClaim(t, s, req, dedup.StateAcquired)
			server.Client().ScriptFlush(t.Context())
			mustComplete(t, s, req, []byte("answer"))
		})
	}
}
