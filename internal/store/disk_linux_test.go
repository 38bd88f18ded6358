package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// smallDisk mounts a disk in memory of this size. It reports false where this process may
// not.
func smallDisk(t *testing.T, size string) (dir string, ok bool) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "idemdisk") //nolint:usetesting // another user must get into it
	must(t, err)
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Logf("no disk to mount: %v", err)
		return dir, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// untilFull claims until there is no room, and returns what was claimed and the claim that
// was refused.
func untilFull(t *testing.T, s dedup.Store) (claimed []dedup.ClaimRequest, refused dedup.ClaimRequest) {
	t.Helper()
	for range 5000 {
		req := request(time.Hour)
		req.Note = make([]byte, 7000)
		_, err := s.Claim(t.Context(), req)
		if err == nil {
			claimed = append(claimed, req)
			continue
		}
		wantRefused(t, err, dedup.ErrStoreFull)
		if !errors.Is(err, dedup.ErrNotApplied) {
			t.Errorf("error %v, which leaves open whether it was applied", err)
		}
		return claimed, req
	}
	t.Fatal("it never was full")
	return nil, dedup.ClaimRequest{}
}

// goesOn checks that a store with room again knows all it knew, and takes new claims.
func goesOn(t *testing.T, s dedup.Store, done dedup.ClaimRequest, claimed []dedup.ClaimRequest, refused dedup.ClaimRequest) {
	t.Helper()
	eventually(t, "room", func() error {
		_, err := s.Claim(t.Context(), refused)
		return err
	})
	for _, req := range claimed {
		other := req
		other.Token = dedup.NewToken()
		mustClaim(t, s, other, dedup.StateInProgress)
		mustComplete(t, s, req, []byte("answer"))
	}
	mustClaim(t, s, done, dedup.StateCompleted)
	must(t, s.Ping(t.Context()))
}

// On a full disk new claims are refused and nothing is lost; replays work. The test of the
// whole program does the same without the right to mount.
func TestFileOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, ok := smallDisk(t, "2m")
	if !ok {
		return
	}
	path := filepath.Join(dir, "idemproxy.db")
	s := openFile(t, path, nil)
	done := request(time.Hour)
	mustClaim(t, s, done, dedup.StateAcquired)
	mustComplete(t, s, done, []byte("answer"))
	claimed, refused := untilFull(t, s)
	mustClaim(t, s, done, dedup.StateCompleted)
	wantRefused(t, s.Ping(t.Context()), dedup.ErrStoreFull)
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	goesOn(t, s, done, claimed, refused)
	must(t, s.Close())
	goesOn(t, openFile(t, path, nil), done, nil, refused)
}

// PostgreSQL whose disk is full (SQLSTATE 53100) refuses new claims; replays work. Where
// no disk may be mounted for its table, a trigger raises the same error.
func TestPostgresOnAFullDisk(t *testing.T) {
	t.Parallel()
	server := storetest.StartPostgres(t)
	dir, ok := smallDisk(t, "4m")
	s := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix = "idem:" })
	done := request(time.Hour)
	mustClaim(t, s, done, dedup.StateAcquired)
	mustComplete(t, s, done, []byte("answer"))
	more := func() { server.Exec("DROP TRIGGER full_disk ON idempotency_keys") }
	if ok {
		server.Own(dir)
		server.Exec("CREATE TABLESPACE small LOCATION '" + dir + "'")
		server.Exec("ALTER TABLE idempotency_keys SET TABLESPACE small")
		server.Exec("ALTER TABLE idempotency_keys ALTER COLUMN data SET STORAGE EXTERNAL") // or zeros take no room
		more = func() { must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m")) }
	} else {
		server.Exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
			CREATE TRIGGER full_disk BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	}
	claimed, refused := untilFull(t, s)
	mustClaim(t, s, done, dedup.StateCompleted)
	more()
	goesOn(t, s, done, claimed, refused)
}
