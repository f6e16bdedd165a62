package api_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Java reads 22.16Z as 22 s and 16 ms.
func TestATimeIsWrittenWithThreeDigitsOfASecondInUTC(t *testing.T) {
	elsewhere := time.FixedZone("elsewhere", 5*3600+1800)
	for _, row := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 23, 11, 58, 22, 160_000_000, time.UTC), `"2026-11-23T11:58:22.160Z"`},
		{time.Date(2026, 11, 23, 11, 58, 22, 0, time.UTC), `"2026-11-23T11:58:22.000Z"`},
		{time.Date(2026, 11, 23, 11, 58, 22, 999_999_999, time.UTC), `"2026-11-23T11:58:22.999Z"`},
		{time.Date(2026, 11, 23, 4, 0, 0, 16_000_000, elsewhere), `"2026-11-22T22:30:00.016Z"`},
		{time.Time{}, `"0001-01-01T00:00:00.000Z"`},
	} {
		text, err := json.Marshal(api.At(row.at))
		expect.NoError(t, "writing "+row.want, err)
		expect.Equal(t, "a time as it is written", string(text), row.want)
		var read api.Time
		expect.NoError(t, "reading "+row.want, json.Unmarshal(text, &read))
		expect.Equal(t, "a time that was read", read.Time, row.at.UTC().Truncate(time.Millisecond))
	}
	_, err := json.Marshal(api.At(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)))
	expect.Equal(t, "whether a time that RFC 3339 cannot have is an error", err != nil, true)
	text, err := json.Marshal(struct {
		Left api.Time `json:"left,omitzero"`
	}{})
	expect.NoError(t, "writing no time", err)
	expect.Equal(t, "a field with no time", string(text), "{}")
}

// plainTimes are the types with JSON that is no answer, and why.
var plainTimes = map[string]string{
	"access.Record":     "a line of the file of keys and of Redis, which people write as well",
	"evidence.Span":     "what the processes of a test write for each other",
	"evidence.Timeline": "the same",
}

// Each time in JSON is an api.Time, so that none is written in another way.
func TestEveryTimeInJSONIsOfOneType(t *testing.T) {
	found, plain := 0, map[string]bool{}
	expect.NoError(t, "reading the packages", fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && ofAnother(path) {
			return errOr(err, fs.SkipDir)
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), "../"+path, nil, 0)
		if err != nil {
			return err
		}
		for name, kind := range timesInJSON(file) {
			found++
			if name = file.Name.Name + "." + name; kind == "time.Time" && plainTimes[name] != "" {
				plain[name] = true
			} else if kind == "time.Time" {
				t.Errorf("%s: %s has a time.Time in JSON, want an api.Time", path, name)
			}
		}
		return nil
	}))
	if found < 20 || len(plain) != len(plainTimes) {
		t.Errorf("got %d types with times in JSON, and %v of %v: this test looks in the wrong place", found, plain, plainTimes)
	}
}

// ofAnother reports whether a folder is of another module, or of none.
func ofAnother(path string) bool {
	if path == "." {
		return false
	}
	_, err := os.Stat("../" + path + "/go.mod")
	return err == nil || path == "bin" || strings.HasPrefix(path, ".")
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// timesInJSON returns the types of a file with a time in JSON, and its Go type.
func timesInJSON(file *ast.File) map[string]string {
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		ast.Inspect(spec.Type, func(node ast.Node) bool {
			field, ok := node.(*ast.Field)
			if ok && field.Tag != nil && strings.Contains(field.Tag.Value, `json:"`) && !strings.Contains(field.Tag.Value, `json:"-"`) {
				ast.Inspect(field.Type, func(node ast.Node) bool { // also in lists and maps
					switch node := node.(type) {
					case *ast.SelectorExpr:
						if from, _ := node.X.(*ast.Ident); from != nil && node.Sel.Name == "Time" && (from.Name == "time" || found[spec.Name.Name] == "") {
							found[spec.Name.Name] = from.Name + ".Time"
						}
					case *ast.Ident:
						if file.Name.Name == "api" && node.Name == "Time" && found[spec.Name.Name] == "" {
							found[spec.Name.Name] = "api.Time"
						}
					}
					return true
				})
			}
			return true
		})
		return true
	})
	return found
}
