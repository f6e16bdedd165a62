package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

func TestIDsOnePerLine(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		all := []string{}
		for _, args := range [][]string{{"id"}, {"id", "-n", "5000"}, {"id", "--count=3"}, {"id", "default", "-n2"}} {
			code, stdout, stderr := coatcheck(t, nil, append(args, at...)...)
			if code != done {
				t.Fatalf("%v: %d %s", args, code, stderr)
			}
			all = append(all, strings.Fields(stdout)...)
		}
		slices.Sort(all)
		if distinct := len(slices.Compact(slices.Clone(all))); len(all) != 5006 || distinct != len(all) {
			t.Errorf("%d ids, %d different", len(all), distinct)
		}
	})
}

func TestIDsInEveryFormatAreDecoded(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		create := append([]string{"worker", "create", "orders", "--layout", "41/5/5/12", "--datacenter", "9"}, at...)
		if code, _, stderr := coatcheck(t, nil, create...); code != done {
			t.Fatalf("%d %s", code, stderr)
		}
		for format, form := range map[string]string{
			"decimal": `^[0-9]{18}$`, "padded": `^0[0-9]{18}$`, "base36": `^[0-9a-z]{12}$`, "base62": `^[0-9A-Za-z]{11}$`, "base32": `^[0-9A-Z]{12}$`, "timed": `^20[0-9]{22}$`,
		} {
			code, stdout, stderr := coatcheck(t, nil, append([]string{"id", "orders", "--json", "--format", format}, at...)...)
			var made idsMade
			if err := json.Unmarshal([]byte(stdout), &made); code != done || err != nil || len(made.IDs) != 1 || !regexp.MustCompile(form).MatchString(made.IDs[0]) {
				t.Fatalf("%s: %d %s %s", format, code, stdout, stderr)
			}
			code, stdout, stderr = coatcheck(t, nil, append([]string{"id", "decode", "--json", "--pool", "orders", "--format", format, made.IDs[0]}, at...)...)
			var parts []wire.DecodedID
			if err := json.Unmarshal([]byte(stdout), &parts); code != done || err != nil || len(parts) != 1 || parts[0].Datacenter != 9 || parts[0].Layout != "41/5/5/12" {
				t.Errorf("%s: %d %s %s", format, code, stdout, stderr)
			}
		}
		if code, _, stderr := coatcheck(t, nil, append([]string{"id", "orders", "--format", "padded", "--width", "5"}, at...)...); code != failed {
			t.Errorf("too narrow: %d %s", code, stderr)
		}
	})
}

// Straight on Redis the worker id is given back with the moment of the last id, so that the pool is not used up by calls.
func TestWorkerIDOfACallIsGivenBack(t *testing.T) {
	at := []string{"--redis", redistest.Start(t).URL(), "--new-pools", "trust"}
	if code, _, stderr := coatcheck(t, nil, append([]string{"worker", "create", "small", "--layout", "41/1/12"}, at...)...); code != done {
		t.Fatalf("%d %s", code, stderr)
	}
	for range 10 {
		if code, _, stderr := coatcheck(t, nil, append([]string{"id", "small"}, at...)...); code != done {
			t.Fatalf("%d %s", code, stderr)
		}
	}
	for _, slot := range ringOf(t, at, "small").Slots {
		if slot.State != "free" {
			t.Errorf("%+v", slot)
		}
	}
}

// The ids and what they were made of are others' published examples.
func TestDecodeNeedsNoService(t *testing.T) {
	twitter := []string{"--epoch", "2010-11-04T01:42:54.657Z", "--layout", "41/10/12"}
	code, stdout, stderr := coatcheck(t, nil, append([]string{"id", "decode", "1169786042799259000", "890399407000784896"}, twitter...)...)
	for _, part := range []string{"2019-09-06T01:35:00.834Z", "39", "3448", "2017-07-27T02:32:16.107Z"} {
		if code != done || !strings.Contains(stdout, part) {
			t.Errorf("%q is missing in %d %s %s", part, code, stdout, stderr)
		}
	}
	code, stdout, stderr = coatcheck(t, nil, "id", "decode", "--json", "4194308096")
	var parts []wire.DecodedID
	if err := json.Unmarshal([]byte(stdout), &parts); code != done || err != nil || parts[0].WorkerID != 1 || parts[0].Sequence != 0 || parts[0].Time.Format("15:04:05") != "00:00:01" {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
}
