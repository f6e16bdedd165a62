//go:build check

package gateway

import (
	"flag"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// kills is how many receivers are killed: go test -tags=check -run KilledReceivers -kills 100.
var kills = flag.Int("kills", 10, "how many receivers of webhooks are killed")

// receiverProgram is the receiver of docs/webhooks.md, as a process.
type receiverProgram struct {
	t            *testing.T
	folder, addr string
}

func newReceiverProgram(t *testing.T) receiverProgram {
	t.Helper()
	page, err := os.ReadFile("../docs/webhooks.md")
	expect.MustEqual(t, "error of reading the page", err, nil)
	_, after, found := strings.Cut(string(page), "```python\n")
	program, _, ends := strings.Cut(after, "```")
	if !found || !ends || strings.Count(program, "3000") != 1 {
		t.Fatal("docs/webhooks.md has no receiver that listens at port 3000")
	}
	p := receiverProgram{t, t.TempDir(), proctest.ClosedPort(t)}
	_, port, _ := net.SplitHostPort(p.addr)
	err = os.WriteFile(filepath.Join(p.folder, "receiver.py"), []byte(strings.Replace(program, "3000", port, 1)), 0o600)
	expect.MustEqual(t, "error of writing the program", err, nil)
	return p
}

// start returns when the receiver takes connections.
func (p receiverProgram) start() *proctest.Process {
	p.t.Helper()
	cmd := exec.Command("python3", "receiver.py")
	cmd.Dir = p.folder
	process, err := proctest.Start(cmd, syscall.SIGKILL)
	expect.MustEqual(p.t, "error of starting the receiver", err, nil)
	p.t.Cleanup(process.Kill)
	expect.Eventually(p.t, "the receiver takes connections", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		return err == nil && conn.Close() == nil
	})
	return process
}

// effects is how often the ledger has an operation.
func (p receiverProgram) effects(operation string) int {
	p.t.Helper()
	ledger, err := os.ReadFile(filepath.Join(p.folder, "ledger.txt"))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatalf("reading the ledger: %v", err)
	}
	return strings.Count(string(ledger), " "+operation+"\n")
}

// all is how many effects the ledger has.
func (p receiverProgram) all() int {
	p.t.Helper()
	ledger, _ := os.ReadFile(filepath.Join(p.folder, "ledger.txt")) // it need not be there yet
	return strings.Count(string(ledger), "\n")
}

// Receivers are killed at a random moment of a delivery, and started anew; the sender repeats it
// until it is accepted, and what is in doubt is settled as the page says: by what the ledger has.
func TestKilledReceiversHaveEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	app := newReceiverProgram(t)
	store := storetest.Open(t, redisstore.Config{URL: redistest.Start(t).URL()})
	r := start(t, "http://"+app.addr, webhooksPage(t), on(store))
	happened, not := 0, 0
	for i := range *kills {
		d := deliveries[i%len(deliveries)].fresh(1000 + i)
		victim, before := app.start(), app.all()
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(rand.IntN(6000)) * time.Microsecond)
			victim.Kill()
		}()
		d.send(t, r, d.payload, "good")
		<-killed
		next := app.start()
		expect.Eventually(t, "delivery "+strconv.Itoa(i)+" to "+d.path+" is accepted", func() bool {
			status, body := d.send(t, r, d.payload, "good")
			if status == http.StatusConflict {
				h, n := app.settle(t, r)
				happened, not = happened+h, not+n
			} else if status/100 != 2 && status != http.StatusServiceUnavailable {
				t.Errorf("%s: got %d %s, want 2xx, 409 or 503", d.path, status, body)
			}
			return status/100 == 2
		})
		expect.Equal(t, "effects of delivery "+strconv.Itoa(i)+" to "+d.path, app.all()-before, 1)
		next.Kill()
	}
	t.Logf("%d killed; %d in doubt: %d had their effect, %d had not", *kills, happened+not, happened, not)
}

// settle ends what is in doubt as the ledger says.
func (p receiverProgram) settle(t *testing.T, r *rig) (happened, not int) {
	t.Helper()
	list, _, err := r.g.tokens.List(t.Context(), "", "", 100)
	expect.MustEqual(t, "error of listing what is in doubt", err, nil)
	for _, one := range list {
		decision := idempotency.Settlement{Decision: idempotency.DecisionNotBegun}
		if p.effects(one.Name) > 0 {
			decision = idempotency.Settlement{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: http.StatusOK}}
			happened++
		} else {
			not++
		}
		expect.MustEqual(t, "error of settling "+one.Name, r.g.tokens.Settle(t.Context(), one.Name, decision), nil)
	}
	return happened, not
}
