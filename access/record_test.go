package access_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var hash = strings.Repeat("0f", 32)

func TestRecordsOnALine(t *testing.T) {
	records, err := access.ParseRecords(" k7x2:use:orders:orders:*|bills:*:" + hash + ",\n ops1:admin:ops::" + hash + "\n")
	expect.Error(t, "two records", err, nil)
	expect.MustEqual(t, "the number of records", len(records), 2)
	noHash := cmpopts.IgnoreFields(access.Record{}, "Hash")
	expect.Equal(t, "the first record", records[0], access.Record{ID: "k7x2", Role: access.Use, Principal: "orders", Names: access.Names{"orders:*", "bills:*"}}, noHash)
	expect.Equal(t, "its hash", records[0].Hash.String(), hash)
	expect.Equal(t, "the role of the second record", records[1].Role, access.Admin)
	expect.Equal(t, "the second record is for all names", records[1].Names.All(), true)
	for _, r := range records {
		line, ok := r.Line()
		again, err := access.ParseRecords(line)
		expect.Equal(t, r.ID+" can be written on a line", ok, true)
		expect.Error(t, "reading "+line, err, nil)
		expect.Equal(t, "reading "+line, again, []access.Record{r})
	}
	_, err = access.ParseRecords("")
	expect.Error(t, "records of an empty line", err, nil)
}

func TestEveryFaultOfALineIsToldAndNoSecretQuoted(t *testing.T) {
	secret := access.NewKey()
	_, err := access.ParseRecords("K:owner:a b:x y:" + hash + "," + secret.Text() + ",a:use:p::" + secret.Text() + ",k:use:p::" + hash + ",k:use:p::" + hash)
	if err == nil {
		t.Fatal("no fault")
	}
	for _, part := range []string{"record 1: role: read, use or admin", "record 2: a record is id:role", "record 3: sha256: 64 hex digits", "record 5: id: there are two of it"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in\n%v", part, err)
		}
	}
	if strings.Contains(err.Error(), secret.Secret) {
		t.Errorf("a secret in %v", err)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("k7x2:use:orders:orders:*|bills:*:" + hash)
	f.Add("a:read:b::" + hash + "\n,c:use:d:*:" + hash)
	f.Fuzz(func(t *testing.T, text string) {
		records, err := access.ParseRecords(text)
		if err != nil {
			return
		}
		for _, r := range records {
			line, ok := r.Line()
			if err := r.Check(); err != nil || !ok {
				t.Errorf("%q gave %+v: %v", text, r, err)
			}
			if again, err := access.ParseRecords(line); err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], r) {
				t.Errorf("%q written is %q, read %+v, %v", text, line, again, err)
			}
		}
	})
}

const sound = `
keys:
  - id: blue
    sha256: HASH
    principal: orders
    role: use
    prefixes: ["orders:*", orders]
    rate: 100/s
    burst: 20
    not_after: 2027-01-01T01:00:00+01:00
    label: the orders service
  - {id: ops, sha256: HASH, principal: ops, role: admin}
anonymous: {role: read, prefixes: ["public:*"]}
certificates:
  - {dns: orders.internal, principal: orders, role: use}
  - {uri: "spiffe://example/bills", principal: bills, role: read, rate: 30/m}
  - {cn: root, principal: ops, role: admin}
`

func TestFileOfKeys(t *testing.T) {
	set, err := access.Parse("", []byte(strings.ReplaceAll(sound, "HASH", hash)))
	expect.NoError(t, "access.Parse", err)
	expect.MustEqual(t, "the number of keys", len(set.Keys), 2)
	expect.Equal(t, "the number of certificates", len(set.Certificates), 3)
	expect.Equal(t, "the role of the anonymous caller", set.Anonymous.Role, access.Read)
	expect.Equal(t, "the names of the anonymous caller", set.Anonymous.Names, access.Names{"public:*"})
	blue := set.Keys[0]
	expect.Equal(t, "the rate", blue.Rate.String(), "100/s")
	expect.Equal(t, "the burst", blue.Burst, 20)
	expect.Equal(t, "its end", blue.NotAfter.UTC(), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	expect.Equal(t, "its label", blue.Label, "the orders service")
	text, err := json.Marshal(blue)
	expect.Error(t, "writing a record as JSON", err, nil)
	var again access.Record
	expect.Error(t, fmt.Sprintf("reading %s", text), json.Unmarshal(text, &again), nil)
	expect.Equal(t, fmt.Sprintf("reading %s", text), again, blue)
}

func TestEveryFaultOfAFileIsToldWithItsLine(t *testing.T) {
	text := `keys:
  - id: Blue
    sha256: HASH
    principal: ""
    role: use
  - id: b
    sha256: 12
    role: owner
    prefix: a
    not_after: tomorrow
    burst: -1
    rate: 5/d
  - {id: c, sha256: HASH, principal: p, role: read, burst: 3, prefixes: "a*"}
  - {id: d, sha256: HASH, principal: p, role: read, burst: 3, prefixes: ["a**"]}
  - {id: d, sha256: HASH, principal: p, role: read}
  - text
anonymous: {role: none}
certificates:
  - {dns: a, cn: b, principal: p, role: read}
  - {principal: p, role: read}
  - {cn: x, principal: p}
others: 1
keys: []
`
	_, err := access.Parse("", []byte(strings.ReplaceAll(text, "HASH", hash)))
	if err == nil {
		t.Fatal("no fault is found")
	}
	want := []string{
		"line 2: id: 1 to 32", "line 4: principal: 1 to 200", "line 7: sha256: 64 hex", "line 8: role: read, use or admin", "line 9: unknown field", "line 10: not_after: a time is RFC 3339",
		"line 11: burst: a whole number", "line 12: rate: a rate is written", "line 13: prefixes: a list", "line 14: prefixes: entry 1", "line 14: burst: only with a rate",
		"line 15: id: there is a key with this id above", "line 16: a map of fields belongs here", "line 17: role: read, use or admin", "line 19: one of cn, dns and uri", "line 20: one of cn, dns and uri",
		"line 21: role: read, use or admin", "line 22: unknown field", "line 23: keys: given more than once",
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in\n%v", part, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != len(want) {
		t.Errorf("%d faults, want %d:\n%v", n, len(want), err)
	}
}

func TestWhatIsNoFileOfKeysIsRefused(t *testing.T) {
	for _, text := range []string{"", "a", "- a", "a: [", "keys: []\n---\nkeys: []", "keys: 5", "keys:\n  id: a"} {
		if _, err := access.Parse("", []byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	set, err := access.Parse("", []byte("keys:\n"))
	expect.Error(t, "a file without keys", err, nil)
	expect.Equal(t, "the keys of a file without any", len(set.Keys), 0)
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(sound, "HASH", hash)))
	f.Add([]byte("keys:\n  - {id: a, prefixes: [&x a, *x]}\n"))
	f.Add([]byte("keys: [{<<: {id: a}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := access.Parse("", text)
		if err != nil {
			return
		}
		for _, r := range set.Keys {
			if err := r.Check(); err != nil {
				t.Errorf("%q gave %+v: %v", text, r, err)
			}
		}
	})
}
