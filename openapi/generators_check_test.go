//go:build check

package openapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/openapi"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Four generators read the document by the commands of docs/remote.md. Their clients compile, and
// call a service: today's, and a later one whose answers have a field and a code more. With -short
// ogen is left out, whose client takes longest to compile.
func TestGeneratedClientsCallTheService(t *testing.T) {
	programs := map[string][]string{
		"oapi-codegen":       {"bin/byoapi"},
		"ogen":               {"bin/byogen"},
		"openapi-typescript": {"node", "out/byfetch.js"},
		"openapi-ts":         {"node", "out/byhey.js"},
	}
	if testing.Short() {
		delete(programs, "ogen")
	}
	project := generated(t, programs)
	for name, command := range programs {
		t.Run(name, func(t *testing.T) {
			const code, laterCode = "lock-held", "held-by-a-later-rule"
			want := "claim: granted\ncomplete: 204\nclaim: replay 201\nvalues: 1 3\nlock: 201 report\nproblem: 409 " + code + " true\nrelease: 204\n"
			project.prints(t, want, append(slices.Clone(command), service(t))...)
			later := later(t, service(t), code, laterCode)
			project.prints(t, strings.ReplaceAll(want, code, laterCode), append(slices.Clone(command), later)...)
		})
	}
}

// project is the folder of a program with the generated clients.
type project string

// generated runs the generators of these programs by the commands of the page, and compiles all.
func generated(t *testing.T, programs map[string][]string) project {
	t.Helper()
	in := project(t.TempDir())
	packages := proctest.Packages(t, filepath.Join("testdata", "generators"))
	for _, from := range []string{filepath.Join("testdata", "generated"), filepath.Join("testdata", "generators")} {
		expect.NoError(t, "os.CopyFS", os.CopyFS(string(in), os.DirFS(from)))
	}
	expect.NoError(t, "os.Symlink", os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(string(in), "node_modules")))
	expect.NoError(t, "os.WriteFile", os.WriteFile(filepath.Join(string(in), "openapi.yaml"), openapi.Document(), 0o600))
	commands := generators(t)
	for generator, program := range programs {
		in.runs(t, "sh", "-c", commands[generator])
		if folder, isGo := strings.CutPrefix(program[0], "bin/"); isGo {
			// without paths, so that the next run finds in the cache what this one has compiled
			in.runs(t, "go", "build", "-trimpath", "-o", "bin/", "./"+folder)
		}
	}
	in.runs(t, "npx", "tsc", "--outDir", "out")
	return in
}

// generators are the commands of docs/remote.md, by the program that each starts. The page names
// the versions that run here.
func generators(t *testing.T) map[string]string {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		return string(text)
	}
	_, section, found := strings.Cut(read("../docs/remote.md"), "\n## Clients that are generated\n")
	_, block, open := strings.Cut(section, "```sh\n")
	block, _, closed := strings.Cut(block, "\n```")
	expect.MustEqual(t, "docs/remote.md has the section and its block", found && open && closed, true)
	used := regexp.MustCompile(`(?m)/(oapi-codegen)/v2 (v\S+)|/(ogen) (v\S+)|"(openapi-typescript|@hey-api/openapi-ts)": "(.+)"`)
	versions := used.FindAllStringSubmatch(read("testdata/generated/go.mod")+read("testdata/generators/package.json"), -1)
	expect.Equal(t, "generators with a version", len(versions), 4)
	for _, version := range versions {
		words := strings.Join(slices.DeleteFunc(version[1:], func(word string) bool { return word == "" }), " ")
		expect.Contains(t, "docs/remote.md", strings.ReplaceAll(section, "\n", " "), words)
	}
	commands := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^(?:go tool|npx) (\S+) .+`).FindAllStringSubmatch(block, -1) {
		commands[line[1]] = line[0]
	}
	return commands
}

// runs runs a command in the folder, and returns what it prints.
func (in project) runs(t *testing.T, command ...string) string {
	t.Helper()
	run := exec.CommandContext(t.Context(), command[0], command[1:]...)
	run.Dir = string(in)
	var printed, faults bytes.Buffer
	run.Stdout, run.Stderr = &printed, &faults
	if err := run.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, &printed, &faults)
	}
	return printed.String()
}

// prints compares what a client's program prints.
func (in project) prints(t *testing.T, want string, command ...string) {
	t.Helper()
	expect.Equal(t, strings.Join(command, " "), in.runs(t, command...), want)
}

// service starts a service, and returns its address.
func service(t *testing.T) string {
	t.Helper()
	inner := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{})})
	web := httptest.NewServer(inner.Handler())
	t.Cleanup(func() {
		web.Close()
		expect.NoError(t, "Close", inner.Close(t.Context()))
	})
	return web.URL
}

// later starts a proxy before a service, and returns its address. It answers as a later version:
// each object has one more field, and the problem code another name.
func later(t *testing.T, service, code, laterCode string) string {
	t.Helper()
	target, err := url.Parse(service)
	expect.NoError(t, "url.Parse", err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(response *http.Response) error {
		kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
		if kind != "application/json" && kind != "application/problem+json" {
			return nil
		}
		var answer map[string]any
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err
		}
		answer["of_a_later_version"] = map[string]any{"parts": []int{1, 2}}
		if answer["code"] == code {
			answer["code"] = laterCode
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		response.Header.Set("Content-Length", strconv.Itoa(len(text)))
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		return nil
	}
	web := httptest.NewServer(proxy)
	t.Cleanup(web.Close)
	return web.URL
}
