package access_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A record without names is good for all of them, so a list of names that has nothing in it, or an
// entry that is nothing, is refused wherever records are read. A list of records that holds none
// would be no access control at all.
func TestNamesWithNothingInThemAreRefused(t *testing.T) {
	const record = "id: a, sha256: HASH, principal: p, role: use"
	for _, text := range []string{
		"keys: [{" + record + ", prefixes: []}]",
		"keys: [{" + record + `, prefixes: [""]}]`,
		"keys: [{" + record + `, prefixes: ["a:*", ""]}]`,
		"keys: [{" + record + `, prefixes: [","]}]`,
		"keys: [{" + record + `, prefixes: [null]}]`,
		"keys: [{" + record + ", prefixes: }]",
		"anonymous: {role: use, prefixes: []}",
		"certificates: [{cn: a, principal: p, role: use, prefixes: []}]",
	} {
		_, err := access.Parse("", []byte(strings.ReplaceAll(text, "HASH", hash)))
		expect.Contains(t, "fault of the file "+text, errorText(err), "line 1: prefixes: ")
	}
	for _, names := range []string{"|", "a:*|", "|a:*", "a:*||b:*", " "} {
		_, err := access.ParseRecords("a:use:p:" + names + ":" + hash)
		expect.Contains(t, "fault of the record with names "+names, errorText(err), "prefixes: entry")
	}
	for _, text := range []string{",", "\n", " , ,\n"} {
		_, err := access.ParseRecords(text)
		expect.Contains(t, "fault of the records "+text, errorText(err), "there is no record in it")
	}
	for _, names := range []access.Names{{}, {""}, {"a:*", ""}} {
		record := access.Record{ID: "a", Hash: access.Hash{1}, Principal: "p", Role: access.Use, Names: names}
		store := storetest.Open(t, redisstore.Config{})
		expect.Contains(t, "fault of adding a record to the store", errorText(access.Add(t.Context(), store, record)), "prefixes: ")
	}
	var stored access.Record
	expect.NoError(t, "json.Unmarshal", json.Unmarshal([]byte(`{"id":"a","sha256":"`+hash+`","principal":"p","role":"use","prefixes":[]}`), &stored))
	expect.Contains(t, "fault of a record that others have written to the store", errorText(stored.Check()), "prefixes: an empty list")
}

// errorText is what an error says; "" if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
