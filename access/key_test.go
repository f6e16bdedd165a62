package access_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
)

func TestNewKeysAreDifferentAndSurviveBeingWritten(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		key := access.NewKey()
		read, err := access.ParseKey(key.Text())
		if err != nil || read != key || seen[key.Secret] || seen[key.ID] {
			t.Fatalf("got %v and error %v of %s, want the key that was written, with an id and a secret that no other has", read, err, key.Text())
		}
		seen[key.Secret], seen[key.ID] = true, true
		sum := sha256.Sum256([]byte(key.Secret))
		if hash := key.Hash().String(); hash != hex.EncodeToString(sum[:]) {
			t.Fatalf("the hash is %s", hash)
		}
	}
}

func TestPrintedKeyHidesItsSecret(t *testing.T) {
	key := access.NewKey()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, key); strings.Contains(text, key.Secret) || !strings.Contains(text, key.ID) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestWhatIsNoKeyIsRefusedWithoutBeingQuoted(t *testing.T) {
	good := access.NewKey()
	for _, text := range []string{
		"", "cck_", "cck__", good.Secret, "cck_" + good.ID, "cck_" + good.ID + "_", "CCK_" + good.ID + "_" + good.Secret, "cck__" + good.Secret,
		"cck_" + strings.ToUpper(good.ID) + "_" + good.Secret, good.Text() + "x", good.Text()[:len(good.Text())-1], " " + good.Text(), good.Text() + "\n",
		"cck_a-b_" + good.Secret, "cck_" + strings.Repeat("a", 33) + "_" + good.Secret, strings.Replace(good.Text(), "cck_", "cck-", 1),
		"cck_" + good.ID + "_" + strings.Repeat("é", 43), "cck_" + good.ID + "_" + good.Secret[:42] + "=",
	} {
		key, err := access.ParseKey(text)
		if err == nil || key != (access.Key{}) || strings.Contains(err.Error(), good.Secret) {
			t.Errorf("reading %q: got %v and error %v, want no key and an error without the secret", text, key, err)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add(access.NewKey().Text())
	f.Add("cck_a_" + strings.Repeat("_", 43))
	f.Fuzz(func(t *testing.T, text string) {
		key, err := access.ParseKey(text)
		if err == nil && key.Text() != text {
			t.Errorf("%q was read as %q", text, key.Text())
		}
		if err != nil && key != (access.Key{}) {
			t.Errorf("%q gave %v and %v", text, key, err)
		}
	})
}
