//go:build check

package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// ran runs a program in a folder, and returns what it printed.
func ran(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s failed: %v\n%s", program, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// copied is a copy of a client's folder, since building a package writes beside its source. The
// cases that the clients share are in the folder above, as in the repository.
func copied(t *testing.T, dir string) string {
	t.Helper()
	above := t.TempDir()
	to := filepath.Join(above, filepath.Base(dir))
	must(t, "copying "+dir, os.CopyFS(to, os.DirFS(dir)))
	cases, err := os.ReadFile("../clients/cases.json")
	must(t, "the cases", err)
	must(t, "copying the cases", os.WriteFile(filepath.Join(above, "cases.json"), cases, 0o600))
	return to
}

// wheels has what pip builds packages with; Debian's goes with Debian's Python only.
const (
	wheels       = "/usr/share/python-wheels"
	systemPython = "/usr/bin/python3"
)

// The package is installed by the command that its README has, in an environment of its own. pip
// takes its build tools from a folder of the system, so that nothing is fetched.
func TestPythonPackageInstallsAndRuns(t *testing.T) {
	t.Parallel()
	source, env := copied(t, "../clients/python"), t.TempDir()
	ran(t, env, systemPython, "-m", "venv", env)
	python := filepath.Join(env, "bin", "python")
	for _, tool := range []string{"setuptools", "wheel"} {
		if found, _ := filepath.Glob(filepath.Join(wheels, tool+"-*.whl")); len(found) == 0 {
			t.Fatalf("%s has no %s: on Debian apt-get install python3-%s-whl", wheels, tool, tool)
		}
	}
	ran(t, filepath.Dir(source), "env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS="+wheels, python, "-m", "pip", "install", "--quiet", "./python")
	facts := ran(t, env, python, "-c", "import coatcheck, importlib.metadata as m, pathlib; p = pathlib.Path(coatcheck.__file__).parent; print(p, m.version('coatcheck') == coatcheck.__version__, (p / 'py.typed').exists())")
	expect.Contains(t, "the installed package", facts, filepath.Join(env, "lib"), "True True")
	ran(t, source, python, "-m", "unittest", "discover", "tests")

	s := embedded(t)
	token := issue(t, s.Client)
	var got strings.Builder
	for range 2 {
		got.WriteString(ran(t, source, python, "examples/worker.py", "--server", s.url, "--token", token, "--order", "42", "--ledger", filepath.Join(env, "ledger")))
	}
	expect.Contains(t, "two runs with one token", got.String(), `"replayed": false`, `"replayed": true`)
	ids := ran(t, source, python, "examples/ids.py", "--server", s.url, "--pool", "orders", "--n", "3")
	// its worker id, and three ids
	expect.Equal(t, "lines of ids.py: "+ids, strings.Count(ids, "\n"), 4)
	help := ran(t, source, python, "examples/ids.py", "--help")
	expect.Contains(t, "--help", help, "usage:")
}

func TestPythonExamplesSayThatThePackageIsNotInstalled(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"worker.py", "ids.py"} {
		command := exec.CommandContext(t.Context(), systemPython, "-I", "../clients/python/examples/"+example, "--help")
		output, _ := command.CombinedOutput() // its exit code is in the state
		expect.Equal(t, "exit code of "+example, command.ProcessState.ExitCode(), 1)
		expect.Equal(t, example+" without the package", string(output), "the package is not installed: pip install ./clients/python\n")
	}
}

// The package is packed and installed from that, so that what a user gets is what is tried.
func TestNodePackageInstallsAndRuns(t *testing.T) {
	t.Parallel()
	source, program := copied(t, "../clients/node"), t.TempDir()
	packed := strings.TrimSpace(ran(t, source, "npm", "pack", "--silent", "--pack-destination", program))
	must(t, "a package of the user's", os.WriteFile(filepath.Join(program, "package.json"), []byte(`{"name":"shop","private":true,"type":"module"}`), 0o600))
	ran(t, program, "npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "./"+packed)
	for _, file := range []string{"index.mjs", "index.d.ts", "README.md"} {
		if _, err := os.Stat(filepath.Join(program, "node_modules", "coatcheck", file)); err != nil {
			t.Errorf("the installed package: %v", err)
		}
	}
	ran(t, source, "npm", "test")

	s := embedded(t)
	worker, err := os.ReadFile(filepath.Join(source, "examples", "worker.mjs"))
	must(t, "the example", err)
	must(t, "the example", os.WriteFile(filepath.Join(program, "worker.mjs"), worker, 0o600))
	token := issue(t, s.Client)
	var got strings.Builder
	for range 2 {
		got.WriteString(ran(t, program, "node", "worker.mjs", "--server", s.url, "--token", token, "--order", "42", "--ledger", filepath.Join(program, "ledger")))
	}
	expect.Contains(t, "two runs with one token", got.String(), `"replayed":false`, `"replayed":true`)
	expect.Contains(t, "--help", ran(t, program, "node", "worker.mjs", "--help"), "--token TOKEN")
	ids := ran(t, source, "node", "examples/ids.mjs", "--server", s.url, "--pool", "orders", "--n", "3")
	// its worker id, and three ids
	expect.Equal(t, "lines of ids.mjs: "+ids, strings.Count(ids, "\n"), 4)
	expect.Contains(t, "--help", ran(t, source, "node", "examples/ids.mjs", "--help"), "--pool POOL")
}
