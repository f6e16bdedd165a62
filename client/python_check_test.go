//go:build check

package client_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// The program asserts what each subject of the client does; it ends with "ok" or fails.
func TestPythonClientAgainstAService(t *testing.T) {
	t.Parallel()
	s := serve(t, open(t, redistest.Start(t).URL()))
	_, err := s.CreatePool(t.Context(), "shop", client.PoolShape{})
	must(t, "CreatePool", err)
	const program = "../clients/python/against/service.py"
	expect.Equal(t, program, ran(t, ".", "env", "PYTHONPATH="+pythonPackage, languages[0].program, program, s.url), "ok\n")
}

var (
	pythonBlock   = regexp.MustCompile("(?s)```python\n(.*?)```")
	pythonPrinted = regexp.MustCompile(`(?m)^ *print\(.*\) +# (.*)$`)
)

// The code of the README runs, as one program, and prints what the comments beside it say.
func TestPythonREADMERuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../clients/python/README.md")
	must(t, "reading the page", err)
	var program, want strings.Builder
	for _, block := range pythonBlock.FindAllStringSubmatch(string(page), -1) {
		program.WriteString(block[1])
	}
	for _, printed := range pythonPrinted.FindAllStringSubmatch(program.String(), -1) {
		want.WriteString(printed[1] + "\n")
	}
	if strings.Count(want.String(), "\n") < 10 {
		t.Fatalf("the page's code prints\n%s\nwant 10 lines at least", &want)
	}
	file := filepath.Join(t.TempDir(), "readme.py")
	code := strings.ReplaceAll(program.String(), "http://127.0.0.1:8080", embedded(t).url)
	must(t, "writing the program", os.WriteFile(file, []byte(code), 0o600))
	expect.Equal(t, "what the code of the page prints", ran(t, ".", "env", "PYTHONPATH="+pythonPackage, languages[0].program, file), want.String())
}
