package access_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
)

var hash = strings.Repeat("0f", 32)

func TestRecordsOnALine(t *testing.T) {
	records, err := access.ParseRecords(" k7x2:use:orders:orders:*|bills:*:" + hash + ",\n ops1:admin:ops::" + hash + "\n")
	if err != nil || len(records) != 2 {
		t.Fatalf("%+v, %v", records, err)
	}
	if r := records[0]; r.ID != "k7x2" || r.Role != access.Use || r.Principal != "orders" || strings.Join(r.Names, " ") != "orders:* bills:*" || r.Hash.String() != hash {
		t.Errorf("%+v", r)
	}
	if r := records[1]; r.Role != access.Admin || !r.Names.All() {
		t.Errorf("%+v", r)
	}
	for _, r := range records {
		line, ok := r.Line()
		again, err := access.ParseRecords(line)
		if !ok || err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], r) {
			t.Errorf("%q: %+v, %v", line, again, err)
		}
	}
	if _, err := access.ParseRecords(""); err != nil {
		t.Error(err)
	}
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
	set, err := access.Parse([]byte(strings.ReplaceAll(sound, "HASH", hash)))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 2 || len(set.Certificates) != 3 || set.Anonymous.Role != access.Read || set.Anonymous.Names[0] != "public:*" {
		t.Errorf("%+v", set)
	}
	blue := set.Keys[0]
	if blue.Rate.String() != "100/s" || blue.Burst != 20 || !blue.NotAfter.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || blue.Label != "the orders service" {
		t.Errorf("%+v", blue)
	}
	text, err := json.Marshal(blue)
	var again access.Record
	if err != nil || json.Unmarshal(text, &again) != nil || !reflect.DeepEqual(again, blue) {
		t.Errorf("%s, %v, %+v", text, err, again)
	}
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
	_, err := access.Parse([]byte(strings.ReplaceAll(text, "HASH", hash)))
	faults, ok := errors.AsType[*access.Faults](err)
	if !ok {
		t.Fatal(err)
	}
	want := []string{
		"line 2: id: 1 to 32", "line 4: principal: 1 to 200", "line 7: sha256: 64 hex", "line 8: role: read, use or admin", "line 9: unknown field", "line 10: not_after: a time is RFC 3339",
		"line 11: burst: a whole number", "line 12: rate: a rate is written", "line 13: prefixes: a list", "line 14: prefixes: entry 1", "line 14: burst: only with a rate",
		"line 15: id: there is a key with this id above", "line 16: a map belongs here", "line 17: role: read, use or admin", "line 19: one of cn, dns and uri", "line 20: one of cn, dns and uri",
		"line 21: role: read, use or admin", "line 22: unknown field", "line 23: keys: given more than once",
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in\n%v", part, err)
		}
	}
	if len(faults.All) != len(want) {
		t.Errorf("%d faults, want %d:\n%v", len(faults.All), len(want), err)
	}
}

func TestWhatIsNoFileOfKeysIsRefused(t *testing.T) {
	for _, text := range []string{"", "a", "- a", "a: [", "keys: []\n---\nkeys: []", "keys: 5", "keys:\n  id: a"} {
		if _, err := access.Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if set, err := access.Parse([]byte("keys:\n")); err != nil || len(set.Keys) != 0 {
		t.Errorf("%+v, %v", set, err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(sound, "HASH", hash)))
	f.Add([]byte("keys:\n  - {id: a, prefixes: [&x a, *x]}\n"))
	f.Add([]byte("keys: [{<<: {id: a}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := access.Parse(text)
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
