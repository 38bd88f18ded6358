// Package store keeps claims and records: each file is one dedup.Store, and Open
// chooses one by the name in the configuration.
//
//   - memory: one process, bounded, gone with it; never evicts what is alive.
//   - file: one process, in one file; what is acknowledged is on disk.
//   - redis: Redis 6 and later, Valkey, single, Sentinel or Cluster, shared by replicas.
//   - postgres: PostgreSQL 12 and later, one table, shared by replicas.
//
// Around each of them Open puts the decorator that encrypts and compresses what they keep,
// as configured, and reads what was encrypted and compressed before.
//
// A store is dumb and atomic. It does not decide whether a request is executed, does
// not look into the bytes it keeps, does not speak HTTP, does not log and does not
// count: internal/dedup decides, internal/proxy observes. What a correct store does is
// written down as tests in store/storetest.
package store
