package cli

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A command has the descriptors that lock run and worker run were started with, as it has without
// them: of make's jobs, of a passphrase. The inner one of two has them, too.
func TestCommandHasTheDescriptorsThatItsWrapperWasStartedWith(t *testing.T) {
	t.Parallel()
	p := serve(t)
	lockRun := []string{"lock", "run", "--ttl", "1h", "--server", p.banner.URL, "deploy", "--"}
	workerRun := []string{"worker", "run", "--server", p.banner.URL, "orders", "--"}
	plain := copyThrough(t, "sh", "-c", copying)
	for name, args := range map[string][]string{
		"lock": lockRun, "worker": workerRun, "worker within lock": slices.Concat(lockRun, []string{built(t)}, workerRun),
	} {
		t.Run(name, func(t *testing.T) {
			wrapped := copyThrough(t, slices.Concat([]string{built(t)}, args, []string{"sh", "-c", copying})...)
			expect.Equal(t, "descriptors of the command and the program that it starts", wrapped, plain)
		})
	}
}

// copying copies descriptor 3 to 4, and lists the descriptors where the system can.
const copying = `cat <&3 >&4; ls /proc/self/fd 2>/dev/null | tr '\n' ' '`

// copyThrough runs a program that copies descriptor 3 to 4, and returns what it prints.
func copyThrough(t *testing.T, line ...string) (stdout string) {
	t.Helper()
	in, into := pipe(t)
	from, out := pipe(t)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	r := startCommand(t, cmd)
	_, err := io.WriteString(into, "through both")
	expect.MustEqual(t, "error of writing to the command's descriptor 3", err, nil)
	for _, file := range []*os.File{in, out, into} {
		_ = file.Close()
	}
	r.exits(done)
	copied, err := io.ReadAll(from)
	expect.MustEqual(t, "error of reading from the command's descriptor 4", err, nil)
	expect.Equal(t, "what the command copied from descriptor 3 to 4", string(copied), "through both")
	return r.stdout.String()
}

func pipe(t *testing.T) (from, into *os.File) {
	t.Helper()
	from, into, err := os.Pipe()
	expect.MustEqual(t, "error of making a pipe", err, nil)
	t.Cleanup(func() {
		_ = from.Close()
		_ = into.Close()
	})
	return from, into
}
