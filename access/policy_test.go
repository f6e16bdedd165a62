package access_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// record is what a key is worth, for all names.
func record(key access.Key, principal string, role access.Role, names ...string) access.Record {
	return access.Record{ID: key.ID, Hash: key.Hash(), Principal: principal, Role: role, Names: names}
}

// entry is a record as the file has it.
func entry(key access.Key, principal, more string) string {
	return fmt.Sprintf("  - {id: %q, sha256: %s, principal: %s, role: use%s}\n", key.ID, key.Hash(), principal, more)
}

func open(t *testing.T, config access.Config) *access.Policy {
	t.Helper()
	policy, err := access.Open(t.Context(), config)
	expect.NoError(t, "access.Open", err)
	t.Cleanup(policy.Close)
	return policy
}

// check reports whether a key is good for a principal; "" is a key that is not known.
func check(t *testing.T, policy *access.Policy, key access.Key, principal string) {
	t.Helper()
	caller, err := policy.Key(key.Text())
	if principal == "" {
		expect.Error(t, fmt.Sprint("the unknown ", key), err, access.ErrBadKey)
		return
	}
	expect.Error(t, fmt.Sprint(key), err, nil)
	expect.Equal(t, fmt.Sprint("the principal of ", key), caller.Principal, principal)
	expect.Equal(t, fmt.Sprint("the id of ", key), caller.KeyID, key.ID)
}

// Two keys of one principal are good at once; after the change the old one is taken out.
func TestRotation(t *testing.T) {
	old, fresh := access.NewKey(), access.NewKey()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, file, "keys:\n"+entry(old, "orders", ""))
	policy := open(t, access.Config{File: file})
	check(t, policy, old, "orders")
	check(t, policy, fresh, "")
	write(t, file, "keys:\n"+entry(old, "orders", "")+entry(fresh, "orders", ""))
	reload(t, policy)
	check(t, policy, old, "orders")
	check(t, policy, fresh, "orders")
	write(t, file, "keys:\n"+entry(fresh, "orders", ""))
	reload(t, policy)
	check(t, policy, old, "")
	check(t, policy, fresh, "orders")
}

func write(t *testing.T, file, text string) {
	t.Helper()
	expect.NoError(t, "os.WriteFile", os.WriteFile(file, []byte(text), 0o600))
}

func reload(t *testing.T, policy *access.Policy) {
	t.Helper()
	expect.NoError(t, "Reload", policy.Reload(t.Context()))
}

func TestWrongSecretOfAKnownIDIsAsBadAsAnUnknownID(t *testing.T) {
	key := access.NewKey()
	policy := open(t, access.Config{Keys: []access.Record{record(key, "orders", access.Use)}})
	check(t, policy, key, "orders")
	check(t, policy, access.Key{ID: key.ID, Secret: access.NewKey().Secret}, "")
	check(t, policy, access.Key{ID: "other", Secret: key.Secret}, "")
	for _, text := range []string{"", "Basic", key.Secret, strings.ToUpper(key.Text())} {
		_, err := policy.Key(text)
		expect.Error(t, fmt.Sprintf("the key %q", text), err, access.ErrBadKey)
	}
}

func TestFileWithAFaultLeavesTheOneBeforeInForce(t *testing.T) {
	key := access.NewKey()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	var log logtest.Text
	write(t, file, "keys:\n"+entry(key, "orders", ""))
	policy := open(t, access.Config{File: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, fault := range []struct{ text, says string }{
		{"keys:\n" + entry(key, "orders", ", color: blue"), "line 2: unknown field"},
		{"keys: [", "not YAML"},
		{"", "empty"},
	} {
		write(t, file, fault.text)
		err := policy.Reload(t.Context())
		expect.Contains(t, "the error of Reload", fmt.Sprint(err), fault.says)
		expect.Contains(t, "the log", log.String(), fault.says)
		check(t, policy, key, "orders")
	}
	expect.NoError(t, "os.Remove", os.Remove(file))
	expect.Error(t, "Reload without the file", policy.Reload(t.Context()), os.ErrNotExist)
	check(t, policy, key, "orders")
	write(t, file, "keys:\n"+entry(key, "bills", ""))
	reload(t, policy)
	check(t, policy, key, "bills")
	if text := log.String(); strings.Contains(text, key.Hash().String()) {
		t.Errorf("a hash is in the log:\n%s", text)
	}
	if _, err := access.Open(t.Context(), access.Config{File: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("at the start: %v", err)
	}
}

// A store that is away does not hide the file's faults: without its keys the process would start,
// and refuse their callers.
func TestFileWithAFaultIsAnErrorAtTheStartWhileTheStoreIsAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, file, "keys: [")
	away, err := redisstore.Open(t.Context(), "embedded:")
	expect.Error(t, "opening a store", err, nil)
	expect.Error(t, "closing it", away.Close(), nil)
	policy, err := access.Open(t.Context(), access.Config{File: file, Store: away})
	policy.Close()
	expect.Contains(t, "the error of Open", fmt.Sprint(err), "not YAML")
}

// The file is read again by itself once it has stood still for two looks.
func TestFileIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	synctest.Test(t, func(t *testing.T) {
		key := access.NewKey()
		write(t, file, "keys:\n")
		var log logtest.Text
		policy := open(t, access.Config{File: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		write(t, file, "keys:\n"+entry(key, "orders", ""))
		time.Sleep(6 * time.Second)
		check(t, policy, key, "")
		time.Sleep(5 * time.Second)
		check(t, policy, key, "orders")
		write(t, file, "keys: [")
		time.Sleep(time.Minute)
		check(t, policy, key, "orders")
		expect.Equal(t, "how often the log tells of the fault", strings.Count(log.String(), "not YAML"), 1)
	})
}

func TestWorldReadableFileIsWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, file, "keys: []\n")
	for _, exposed := range []bool{false, true} {
		if exposed {
			expect.NoError(t, "os.Chmod", os.Chmod(file, 0o644))
		}
		var log logtest.Text
		open(t, access.Config{File: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if strings.Contains(log.String(), "every user of this machine") != exposed {
			t.Errorf("exposed %v: %s", exposed, log.String())
		}
	}
}

func TestKeyEndsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := access.NewKey()
		one := record(key, "orders", access.Use)
		one.NotAfter = time.Now().Add(time.Hour)
		policy := open(t, access.Config{Keys: []access.Record{one}})
		time.Sleep(time.Hour - time.Nanosecond)
		check(t, policy, key, "orders")
		time.Sleep(time.Nanosecond)
		_, err := policy.Key(key.Text())
		expect.Error(t, "a key at its end", err, access.ErrExpired)
		if _, err := policy.Key(access.Key{ID: key.ID, Secret: access.NewKey().Secret}.Text()); !errors.Is(err, access.ErrBadKey) {
			t.Errorf("a wrong secret learns of the end: %v", err)
		}
	})
}

func TestKeysInTheStore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		blue, green := access.NewKey(), access.NewKey()
		one := record(blue, "orders", access.Use, "orders:*")
		policy := open(t, access.Config{Store: store, Every: 10 * time.Millisecond})
		check(t, policy, blue, "")
		for range 2 { // a lost answer may be asked for again
			expect.NoError(t, "access.Add", access.Add(t.Context(), store, one))
		}
		other := one
		other.Principal = "bills"
		if err := access.Add(t.Context(), store, other); !errors.Is(err, access.ErrThere) {
			t.Errorf("another of the id: %v", err)
		}
		if err := access.Add(t.Context(), store, access.Record{ID: "x"}); err == nil {
			t.Error("a record without anything is stored")
		}
		expect.NoError(t, "access.Add", access.Add(t.Context(), store, record(green, "bills", access.Read)))
		expect.Eventually(t, "both keys are known", func() bool { return known(policy, blue) && known(policy, green) })
		check(t, policy, blue, "orders")
		list, err := access.List(t.Context(), store)
		expect.Error(t, "List", err, nil)
		expect.MustEqual(t, "the number of records", len(list), 2)
		expect.Error(t, "the first record", list[0].Err, nil)
		expect.Equal(t, "the first record lacks when it was added", list[0].Added.IsZero(), false)
		if list[0].ID >= list[1].ID {
			t.Errorf("List: got %s before %s, want them in order", list[0].ID, list[1].ID)
		}
		for i, want := range []bool{true, false} {
			was, err := access.Remove(t.Context(), store, blue.ID)
			expect.Error(t, fmt.Sprintf("removal %d", i+1), err, nil)
			expect.Equal(t, fmt.Sprintf("removal %d: the key was there", i+1), was, want)
		}
		expect.Eventually(t, "the removed key is refused", func() bool { return !known(policy, blue) })
		check(t, policy, green, "bills")
	})
}

func known(policy *access.Policy, key access.Key) bool {
	_, err := policy.Key(key.Text())
	return err == nil
}

func TestKeysStayWhileTheStoreIsAway(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 20 * time.Second})
	key, late := access.NewKey(), access.NewKey()
	expect.NoError(t, "access.Add", access.Add(t.Context(), store, record(key, "orders", access.Use)))
	policy := open(t, access.Config{Store: store, Every: 10 * time.Millisecond})
	check(t, policy, key, "orders")
	server.Kill()
	for range 3 {
		expect.Error(t, "Reload while the store is away", policy.Reload(t.Context()), redisstore.ErrUnavailable)
		check(t, policy, key, "orders")
		check(t, policy, late, "")
	}
	fresh := open(t, access.Config{Store: store, Every: 10 * time.Millisecond, Keys: []access.Record{record(late, "bills", access.Read)}})
	check(t, fresh, late, "bills")
	if _, err := fresh.Key(key.Text()); !errors.Is(err, access.ErrNotRead) {
		t.Errorf("before the store was read: %v", err)
	}
	server.Restart()
	expect.Eventually(t, "the store is read", func() bool { _, err := fresh.Key(key.Text()); return !errors.Is(err, access.ErrNotRead) })
}

// A record that another program wrote there is ignored, and harms no other record.
func TestRecordInTheStoreThatCanNotBeReadCountsForNothing(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	key, bad := access.NewKey(), access.NewKey()
	expect.NoError(t, "access.Add", access.Add(t.Context(), store, record(key, "orders", access.Use)))
	good := server.Client().HGet(t.Context(), "coatcheck:access:{keys}", key.ID).Val()
	for id, text := range map[string]string{"junk": "junk", "other": good, bad.ID: `1 {"id":"` + bad.ID + `","sha256":"` + bad.Hash().String() + `","principal":"","role":"admin"}`} {
		expect.NoError(t, "HSet coatcheck:access:{keys}", server.Client().HSet(t.Context(), "coatcheck:access:{keys}", id, text).Err())
	}
	policy := open(t, access.Config{Store: store})
	check(t, policy, key, "orders")
	check(t, policy, bad, "")
	check(t, policy, access.Key{ID: "other", Secret: key.Secret}, "")
	list, err := access.List(t.Context(), store)
	wrong := 0
	for _, one := range list {
		if one.Err != nil {
			wrong++
		}
	}
	expect.Error(t, "List", err, nil)
	expect.Equal(t, "the number of records", len(list), 4)
	expect.Equal(t, "those that cannot be read", wrong, 3)
}

func TestFileCountsBeforeTheEnvironmentAndThatBeforeTheStore(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	key := access.NewKey()
	expect.NoError(t, "access.Add", access.Add(t.Context(), store, record(key, "store", access.Admin)))
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, file, "keys:\n"+entry(key, "file", ""))
	check(t, open(t, access.Config{Store: store}), key, "store")
	environment := []access.Record{record(key, "environment", access.Read)}
	check(t, open(t, access.Config{Store: store, Keys: environment}), key, "environment")
	check(t, open(t, access.Config{Store: store, Keys: environment, File: file}), key, "file")
}

func TestCertificatesAndNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, file, strings.ReplaceAll(sound, "HASH", hash))
	limit := access.Limit{Rate: access.Rate{N: 7, Per: time.Second}}
	policy := open(t, access.Config{File: file, Limit: limit})
	spiffe, _ := url.Parse("spiffe://example/bills")
	for _, row := range []struct {
		cert      x509.Certificate
		principal string
		role      access.Role
	}{
		{x509.Certificate{DNSNames: []string{"x", "orders.internal"}}, "orders", access.Use},
		{x509.Certificate{URIs: []*url.URL{spiffe}}, "bills", access.Read},
		{x509.Certificate{Subject: pkix.Name{CommonName: "root"}}, "ops", access.Admin},
		{x509.Certificate{Subject: pkix.Name{CommonName: "orders.internal"}}, "", access.None},
		{x509.Certificate{DNSNames: []string{"root", "ORDERS.internal"}}, "", access.None},
		{x509.Certificate{}, "", access.None},
	} {
		caller, ok := policy.Certificate(&row.cert)
		asked := fmt.Sprintf("the certificate of CN %q, DNS names %q and URIs %v", row.cert.Subject.CommonName, row.cert.DNSNames, row.cert.URIs)
		expect.Equal(t, asked+" is known", ok, row.principal != "")
		expect.Equal(t, asked+": the principal", caller.Principal, row.principal)
		expect.Equal(t, asked+": the role", caller.Role, row.role)
		if ok {
			expect.Equal(t, asked+" has a limit of its own", caller.Limit != limit, row.principal == "bills")
		}
	}
	anonymous := policy.Anonymous()
	expect.Equal(t, "the role of an anonymous caller", anonymous.Role, access.Read)
	expect.Equal(t, "an anonymous caller may use public:1", anonymous.Names.Allow("public:1"), true)
	expect.Equal(t, "an anonymous caller may use x", anonymous.Names.Allow("x"), false)
	expect.Equal(t, "the principal of an anonymous caller", anonymous.Principal, "")
	expect.Equal(t, "the limit of an anonymous caller", anonymous.Limit, limit)
	expect.Equal(t, "the role of an anonymous caller where the file has none", open(t, access.Config{}).Anonymous().Role, access.None)
}
