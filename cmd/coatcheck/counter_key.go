package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/names"
	numbers "github.com/coatcheck/coatcheck/number"
)

const (
	keptBehind  = 48 * time.Hour // how long a period's counter is kept behind its end, as the service keeps it
	maxApart    = 24 * time.Hour // of the moment that a number is of, from now
	mostNumbers = 1000           // that a template writes at once
)

// splitKey takes a date off a counter's key: orders:{yyyyMMdd} is orders and {yyyyMMdd}.
func splitKey(text string) (key, calendar string, err error) {
	plain, _, dated := strings.Cut(text, "{")
	if dated {
		colon := strings.LastIndexByte(plain, ':')
		if colon < 0 {
			return "", "", fmt.Errorf("%q: a date stands behind a colon, as in orders:{yyyyMMdd}", text)
		}
		text, calendar = text[:colon], text[colon+1:]
	}
	if !names.InPath(text) {
		return "", "", fmt.Errorf("%q can not be a counter's key: %s, and behind a colon a date such as {yyyyMMdd}", text, names.Rule)
	}
	return text, calendar, nil
}

// numbering is which counter a request adds to, and how its values are written, as the service finds it.
type numbering struct {
	request  client.CounterRequest
	key      string
	template numbers.Template // if there is one
	at       time.Time        // on the clock of the zone
	period   numbers.Period   // zero = the counter does not begin anew
}

// numberingOf finds it. What is wrong with the request is a usageError.
func numberingOf(key string, request client.CounterRequest, now time.Time) (numbering, error) {
	n := numbering{request: request, key: key, at: now}
	if err := n.find(now); err != nil {
		return n, usageError{err}
	}
	return n, nil
}

func (n *numbering) find(now time.Time) (err error) {
	zone, err := time.LoadLocation(n.request.Zone) // "" is UTC
	if err != nil {
		return err
	}
	if !n.request.At.IsZero() {
		n.at = n.request.At
	}
	if n.at = n.at.In(zone); now.Sub(n.at).Abs() > maxApart {
		return fmt.Errorf("--at: within %v of now", maxApart)
	}
	if n.request.Template != unsaid {
		if n.template, err = numbers.ParseTemplate(n.request.Template); err != nil {
			return err
		}
		if n.request.By > mostNumbers {
			return fmt.Errorf("--by: 1 to %d with a template", mostNumbers)
		}
	}
	return n.count(zone)
}

// count finds the counter: that of the calendar's period, or of the template's.
func (n *numbering) count(zone *time.Location) (err error) {
	switch {
	case n.request.Calendar != unsaid:
		calendar, err := numbers.ParseCalendarKey(n.key+":"+n.request.Calendar, zone)
		if err != nil {
			return err
		}
		if n.request.Template != unsaid {
			err = n.template.Fits(calendar)
		}
		if err == nil {
			n.key, n.period, err = calendar.At(n.at)
		}
		return err
	case n.request.Template == unsaid:
		return nil
	}
	if n.period, err = n.template.Period(n.at, zone); err != nil || n.period.Label == "" {
		return err
	}
	n.key += ":" + n.period.Label
	if !names.Valid(n.key) {
		return fmt.Errorf("--template: %q would be the counter, which can not be; end KEY in a date, as orders:{yyyyMMdd}", n.key)
	}
	return nil
}

// counted is what is asked of the counter.
func (n *numbering) counted(now time.Time) counter.Request {
	asked := counter.Request{By: n.request.By, RequestID: n.request.RequestID, TTL: n.ttl(n.request.TTL, now)}
	if n.request.Template != unsaid && n.template.Max() < math.MaxInt64 {
		asked.Limit = n.template.Max()
	}
	return asked
}

// ttl is how long the counter is to live from now on, if it was not said; 0 = for ever.
func (n *numbering) ttl(said time.Duration, now time.Time) time.Duration {
	if said != 0 || n.period.Label == "" {
		return said
	}
	return (n.period.Until.Sub(now) + keptBehind).Truncate(time.Millisecond)
}

// write gives the values, and the numbers that they are by the template.
func (n *numbering) write(got counter.Range) (client.CounterRange, error) {
	written := client.CounterRange{Key: n.key, First: got.First, Value: got.Value}
	if n.request.Template == unsaid {
		return written, nil
	}
	for value := got.First; ; value++ { // the last may be the largest there is
		text, err := n.template.Format(value, n.at)
		if err != nil {
			return written, fmt.Errorf("the counter came to %d, which the template can not write: %w", value, err)
		}
		if written.Numbers = append(written.Numbers, text); value == got.Value {
			return written, nil
		}
	}
}

// oneOf finds the counter of a command that does not add. This machine's clock says which date it is.
func oneOf(text, zone string, now time.Time) (numbering, error) {
	key, calendar, err := splitKey(text)
	if err == nil && zone != unsaid && calendar == unsaid {
		err = errors.New("--zone: there is no date in KEY")
	}
	if err != nil {
		return numbering{}, usageError{err}
	}
	return numberingOf(key, client.CounterRequest{Calendar: calendar, Zone: zone}, now)
}

// oneCounter refuses anything but one key.
func oneCounter(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("one counter's key belongs here, not %d", len(args))}
	}
	return nil
}

// zoneName is a time zone by its name; empty is UTC.
func zoneName(name, help string, into *string) *setting {
	return &setting{name: name, unit: "name", help: help, parse: func(s string) error {
		*into = s
		if _, err := time.LoadLocation(s); err != nil || s == "Local" { // which is another one on another machine
			return fmt.Errorf("%q is not a time zone such as Europe/Berlin", s)
		}
		return nil
	}}
}
