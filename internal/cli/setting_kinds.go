package cli

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/redisconn"
)

func text(name, value, unit, help string, into *string) *setting {
	return &setting{name: name, value: value, unit: unit, help: help, parse: func(s string) error {
		*into = s
		return nil
	}}
}

// optional lets a setting be empty, which is what its help says.
func optional(s *setting) *setting {
	parse := s.parse
	s.parse = func(text string) error {
		if text != "" {
			return parse(text)
		}
		return nil
	}
	return s
}

// hot marks a setting of which a new value in the file is taken on SIGHUP.
func hot(s *setting) *setting {
	s.hot = true
	return s
}

func storeURL(s *setting) *setting {
	s.redact = redisconn.Redact
	return s
}

// keyring is a list of keys, id:secret each, of which only the ids are ever shown.
func keyring(name, help string, into *[]idempotency.Key) *setting {
	ids := func(value string) string {
		keys, err := idempotency.ParseKeys(value)
		if err != nil {
			return "(not keys)"
		}
		var ids []string
		for _, key := range keys {
			ids = append(ids, key.ID+":…")
		}
		return strings.Join(ids, ",")
	}
	return &setting{name: name, unit: "id:secret,…", help: help, redact: ids, parse: func(s string) (err error) {
		*into, err = idempotency.ParseKeys(s)
		return err
	}}
}

var headerName = names.NewForm("A-Za-z0-9!#$%&'*+.^_|~-", 1, 100)

// headers is a list of names of request headers; empty is none.
func headers(name, value, help string, into *[]string) *setting {
	return &setting{name: name, value: value, unit: "header,…", help: help, parse: func(s string) error {
		*into = nil
		for part := range strings.SplitSeq(s, ",") {
			header := strings.TrimSpace(part)
			if header == "" && s == "" {
				return nil
			}
			if !headerName.MatchString(header) {
				return fmt.Errorf("%q is not the name of a header", header)
			}
			*into = append(*into, http.CanonicalHeaderKey(header))
		}
		return nil
	}}
}

// named is a name as the HTTP interface takes it.
func named(name, value, help string, into *string) *setting {
	return &setting{name: name, value: value, unit: "name", help: help, parse: func(s string) error {
		if !names.Valid(s) {
			return fmt.Errorf("%q is not a name: %s", s, names.Rule)
		}
		*into = s
		return nil
	}}
}

// poolNames is a list of names.
func poolNames(name, help string, into *[]string) *setting {
	return &setting{name: name, unit: "names", help: help, parse: func(text string) error {
		*into = nil
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" && text == "" {
				return nil
			}
			if !names.Valid(part) {
				return fmt.Errorf("%q is not a name: %s", part, names.Rule)
			}
			*into = append(*into, part)
		}
		return nil
	}}
}

func address(name, value, help string, into *string) *setting {
	return &setting{name: name, value: value, unit: "host:port", help: help, parse: func(s string) error {
		*into = s
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("%q is not host:port, such as %s", s, value)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("port %q of host %q is not a number from 0 to 65535", port, host)
		}
		return nil
	}}
}

func toggle(name, help string, into *bool) *setting { return toggled(name, "false", help, into) }

func toggled(name, value, help string, into *bool) *setting {
	return &setting{name: name, value: value, unit: "true or false", kind: "bool", help: help, toggle: true, parse: func(s string) (err error) {
		if *into, err = strconv.ParseBool(s); err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		return nil
	}}
}

func number(name, value string, least, most int64, unit, help string, into *int64) *setting {
	return &setting{name: name, value: value, unit: unit, kind: "int", help: help, parse: func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		*into = n
		return nil
	}}
}

func span(name, value string, least, most time.Duration, help string, into *time.Duration) *setting {
	return &setting{name: name, value: value, unit: "duration", help: help, parse: func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is not a duration from %v to %v, such as %s", s, least, most, value)
		}
		*into = d
		return nil
	}}
}

func choice(name, value string, from []string, help string, into *string) *setting {
	return &setting{name: name, value: value, unit: strings.Join(from, " or "), choices: from, help: help, parse: func(s string) error {
		if !slices.Contains(from, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(from, ", "))
		}
		*into = s
		return nil
	}}
}

func level(name, value, help string, into *slog.Level) *setting {
	return &setting{name: name, value: value, unit: "level", help: help, parse: func(s string) error {
		if err := into.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is not a level: debug, info, warn or error", s)
		}
		return nil
	}}
}
