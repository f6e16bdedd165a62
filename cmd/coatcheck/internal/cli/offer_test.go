package cli

import (
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// offering starts a service with a lock, a pool and a counter, whose names the shell is offered.
func offering(t *testing.T) (at string) {
	t.Helper()
	p := serve(t)
	p.do("POST", "/lock/nightly", `{"ttl_ms":3600000}`)
	p.do("POST", "/worker/orders", `{"identity":"orders-0"}`)
	p.do("GET", "/incr/invoices", "")
	return p.banner.URL
}

func TestShellIsOfferedTheNamesOfAService(t *testing.T) {
	at := offering(t)
	for line, want := range map[string]string{
		"lock run n":        "nightly\n:4\n",
		"lock ls n":         "nightly\n:4\n",
		"lock break ":       "nightly\n:4\n",
		"lock break x":      ":4\n",
		"worker run o":      "orders\n:4\n",
		"worker ls o":       "orders\n:4\n",
		"id snowflake o":    "orders\n:4\n",
		"incr inv":          "invoices\n:4\n",
		"counter get inv":   "invoices\n:4\n",
		"counter set ":      "invoices\n:4\n",
		"counter rm i":      "invoices\n:4\n",
		"lock ls nightly ":  ":4\n",
		"lock run nightly ": ":0\n", // a command comes next: files
	} {
		command, begun := line[:strings.LastIndex(line, " ")], line[strings.LastIndex(line, " ")+1:]
		args := append([]string{"__complete"}, append(strings.Fields(command), "--server", at, begun)...)
		expect.Equal(t, "completion of "+line, execute(t, nil, args...).exits(done).stdout, want)
	}
}

func TestShellIsOfferedNothingWhereNoServiceAnswers(t *testing.T) {
	answer := execute(t, nil, "__complete", "lock", "run", "--server", "http://127.0.0.1:1", "n").exits(done)
	expect.Equal(t, "completion without a service", answer.stdout, ":4\n")
}

// The script of `completion bash` has bash offer them. What bash-completion brings is defined here,
// since not every machine has it.
func TestBashCompletesTheNameOfALock(t *testing.T) {
	script := execute(t, nil, "completion", "bash").exits(done).stdout + `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
COMP_WORDS=(coatcheck lock run ni); COMP_CWORD=3; COMP_TYPE=9; COMP_KEY=9; COMP_LINE="coatcheck lock run ni"; COMP_POINT=${#COMP_LINE}
coatcheck() { "$PROGRAM" "$@"; }
__start_coatcheck
echo "offered: ${COMPREPLY[*]}"`
	bash := exec.Command("bash", "-c", script)
	bash.Env = append(bash.Environ(), "PROGRAM="+built(t), asProgram+"=1", "COATCHECK_SERVER="+offering(t))
	output, err := bash.CombinedOutput()
	expect.Equal(t, "error of bash", err, nil)
	expect.Contains(t, "what bash says", string(output), "offered: nightly")
}

func TestCommandSaysOnATerminalThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen logtest.Text
		quiet := liveLine{&screen}.waiting("coatcheck lock run")
		time.Sleep(waitShown - time.Millisecond)
		synctest.Wait()
		expect.Equal(t, "the screen before two seconds", screen.String(), "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect.Contains(t, "the screen after three seconds", screen.String(), "coatcheck lock run: waiting for 3 s")
		quiet()
		quiet()
		expect.Equal(t, "the end of the screen", strings.HasSuffix(screen.String(), "\r\x1b[2K"), true)
	})
}
