package audit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

func TestLineSaysWhoDidWhatFromWhere(t *testing.T) {
	entry := audit.Entry{Action: "counter.set", Name: "invoices", By: api.EventBy{
		Principal: "ops", KeyID: "k7", Certificate: "ops.internal", Address: "192.0.2.7", Route: "PUT /counter/{key}", Code: "outcome-unknown",
	}}
	for mode, want := range map[string]string{
		"":            `msg=audit action=counter.set name=invoices principal=ops key_id=k7 certificate=ops.internal address=192.0.2.7 route="PUT /counter/{key}" code=outcome-unknown` + "\n",
		audit.Names:   `msg=audit action=counter.set name=invoices principal=ops key_id=k7 certificate=ops.internal address=192.0.2.7 route="PUT /counter/{key}" code=outcome-unknown` + "\n",
		audit.NoNames: `msg=audit action=counter.set principal=ops key_id=k7 certificate=ops.internal address=192.0.2.7 route="PUT /counter/{key}" code=outcome-unknown` + "\n",
		audit.None:    "",
	} {
		log := &logtest.Text{}
		audit.New(log.Logger(), mode).Done(t.Context(), entry)
		_, got, _ := strings.Cut(log.String(), "level=INFO ")
		expect.Equal(t, "the line of mode "+mode, got, want)
	}
	log := &logtest.Text{}
	audit.New(log.Logger(), "").Done(t.Context(), audit.Entry{Action: "counter.set"})
	expect.Contains(t, "a line without a caller", log.String(), "msg=audit action=counter.set\n")
}

// However many are refused, the log has a bounded number of lines, and says how many have none.
func TestRefusalsCannotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Text{}
		l := audit.New(log.Logger(), "")
		refuse := func(address string, times int) (told int) {
			for range times {
				if l.Refused(t.Context(), audit.Entry{By: api.EventBy{Address: address, Code: "unauthorized"}}) {
					told++
				}
			}
			return told
		}
		expect.Equal(t, "lines of 1000 refusals of one address", refuse("192.0.2.1", 1000), 20)
		expect.Equal(t, "lines of 5 refusals of another", refuse("192.0.2.2", 5), 5)
		all := 0
		for i := range 1000 {
			all += refuse(fmt.Sprintf("2001:db8:0:%x::1", i), 5)
		}
		expect.Equal(t, "lines of 5000 refusals of 1000 more", all, 175)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect.Contains(t, "the log after the window", log.String(), "action=refused left_out=5805\n")
		expect.Equal(t, "lines of the address that had the first, in the next window", refuse("192.0.2.1", 22), 20)
		l.Close()
		expect.Contains(t, "the log after the end", log.String(), "action=refused left_out=2\n")
		expect.Equal(t, "lines of the log", strings.Count(log.String(), "\n"), 222)
	})
}

// Whoever has one address of IPv6 has all of its /64.
func TestRefusalsOfANetworkShareItsLines(t *testing.T) {
	for _, network := range []string{"2001:db8::%x", "2001:db8::1:%x:0:1", "::ffff:192.0.2.%[2]d"} {
		l := audit.New((&logtest.Text{}).Logger(), "")
		told := 0
		for i := range 100 {
			if l.Refused(t.Context(), audit.Entry{By: api.EventBy{Address: fmt.Sprintf(network, i, 7)}}) {
				told++
			}
		}
		l.Close()
		expect.Equal(t, "lines of 100 refusals from "+network, told, 20)
	}
}

func TestRefusalsWithoutLinesAreCountedInAnyMode(t *testing.T) {
	log := &logtest.Text{}
	l := audit.New(log.Logger(), audit.None)
	told := 0
	for range 100 {
		if l.Refused(context.Background(), audit.Entry{By: api.EventBy{Address: "192.0.2.1"}}) {
			told++
		}
	}
	l.Close()
	expect.Equal(t, "refusals that events may tell of", told, 20)
	expect.Equal(t, "the log", log.String(), "")
}
