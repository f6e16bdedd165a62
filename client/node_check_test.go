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
func TestNodeClientAgainstAService(t *testing.T) {
	t.Parallel()
	s := serve(t, open(t, redistest.Start(t).URL()))
	_, err := s.CreatePool(t.Context(), "shop", client.PoolShape{})
	must(t, "CreatePool", err)
	program := filepath.Join("against", "service.mjs")
	expect.Equal(t, program, ran(t, "../clients/node", "node", program, s.url), "ok\n")
}

var jsBlock = regexp.MustCompile("(?s)```js\n(.*?)```")

// The code of the README runs, as one program: what a reader has by then, some work, it gets first.
func TestNodeREADMERuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../clients/node/README.md")
	must(t, "reading the page", err)
	blocks := jsBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of code: does this test still read them?", len(blocks))
	}
	s := embedded(t)
	_, err = s.CreatePool(t.Context(), "orders", client.PoolShape{})
	must(t, "CreatePool", err)
	program := "const work = async () => 'done';\nconst connect = async () => ({ charge: async () => {} });\n" + blocks[0][1] +
		"if (replayed || answer.status !== 201) throw new Error(`answered ${answer.status}, replayed ${replayed}`);\n"
	for _, block := range blocks[1:] {
		program += "{\n" + block[1] + "}\n"
	}
	own, err := filepath.Abs("../clients/node/index.mjs")
	must(t, "finding the package", err)
	program = strings.NewReplacer("http://127.0.0.1:8080", s.url, "from 'coatcheck'", "from 'file://"+own+"'",
		"client.snowflakeIds()", "client.snowflakeIds('orders')", // there is no default pool here
	).Replace(program) + "console.log('ok');\nprocess.exit(0);\n"
	file := filepath.Join(t.TempDir(), "readme.mjs")
	must(t, "writing the program", os.WriteFile(file, []byte(program), 0o600))
	expect.Equal(t, "what the code of the page prints", ran(t, ".", "node", file), "ok\n")
}
