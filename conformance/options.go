package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"
)

type options struct {
	base        *url.URL
	path        string
	method      string
	body        string
	body2       string
	contentType string
	query       string
	extra       []field // headers of every request
	header      string  // carries the key
	longKey     int     // characters
	marker      field   // of a replayed answer; its name is "" if there is none
	policy      string  // where the refusals link to; "" = anywhere
	unknown     regexp.Regexp

	tokenURL    string
	tokenHeader string
	tokenBody   string
	tokenField  string

	slow        time.Duration // 0 = not told
	slowBody    string
	slowHeader  field
	lease       time.Duration // 0 = not told
	errorBody   string
	errorHeader field
	earlyHeader field
	principalA  field
	principalB  field

	redirectPath string

	serviceURL string
	resolve    string // a method and a path with {operation}

	countURL   string
	countField string

	burst   int
	timeout time.Duration
	wait    time.Duration

	run    regexp.Regexp
	skip   regexp.Regexp
	list   bool
	json   bool
	strict bool
}

// parse reads the command line; what is wrong with it is one error, or flag.ErrHelp.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{marker: field{"Idempotent-Replayed", "true"}}
	set := flag.NewFlagSet("conformance", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	base := set.String("url", "", "the server, such as `http://localhost:8080`")
	o.requestFlags(set)
	o.knowledgeFlags(set)
	o.runFlags(set)
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		help(stderr, set)
	}
	if err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q: there are flags only; -help lists them", set.Arg(0))
	}
	if o.list {
		return o, nil
	}
	if o.base, err = baseURL("url", *base); err != nil {
		return nil, err
	}
	if o.serviceURL != "" {
		if _, err = baseURL("service-url", o.serviceURL); err != nil {
			return nil, err
		}
		o.serviceURL = strings.TrimSuffix(o.serviceURL, "/")
	}
	return o, o.check()
}

func (o *options) requestFlags(set *flag.FlagSet) {
	set.StringVar(&o.path, "path", "/payments", "the guarded `path`")
	set.StringVar(&o.method, "method", "POST", "the guarded `method`")
	set.StringVar(&o.body, "body", `{"amount":1299,"currency":"EUR","to":"acct_1"}`, "the `payload`: a request with it and a new key succeeds")
	set.StringVar(&o.body2, "body2", `{"amount":1300,"currency":"EUR","to":"acct_1"}`, "another `payload` that succeeds with a new key")
	set.StringVar(&o.contentType, "content-type", "application/json", "the payload's media `type`")
	set.StringVar(&o.query, "query", "conformance=2", "a `query` that the path takes and that makes it another request")
	set.Func("H", "`Name: value`, a header of every request; repeatable", o.addHeader)
	set.StringVar(&o.header, "header", "Idempotency-Key",
		"the `header` that carries the key. With the -token-header, every key is a token from -token-url")
	set.IntVar(&o.longKey, "long-key", 300, "a key of this many `characters` is too long")
}

func (o *options) knowledgeFlags(set *flag.FlagSet) {
	set.Var(&o.marker, "marker", "`Name: value`, the header that marks a replayed answer; '' if there is none")
	set.StringVar(&o.policy, "policy", "",
		"the `path` or URL of the route's policy, which refusals have to link to; without it any link will do")
	set.TextVar(&o.unknown, "unknown", regexp.MustCompile(`outcome-unknown`),
		"`regexp` for the type or code of a problem that says: the first attempt's outcome is unknown")
	set.StringVar(&o.tokenURL, "token-url", "", "a POST to this `path` or URL issues a token")
	set.StringVar(&o.tokenHeader, "token-header", "Idempotency-Token", "the `header` that carries an issued token")
	set.StringVar(&o.tokenBody, "token-body", "", "the `JSON` that asks for a token, if any is needed")
	set.StringVar(&o.tokenField, "token-field", "token", "the `field` of the JSON answer that holds the token")
	set.DurationVar(&o.slow, "slow", 0, "how long the slow handler takes; without -slow-body and -slow-header every request takes that long")
	set.StringVar(&o.slowBody, "slow-body", "", "a `payload` that makes the handler slow")
	set.Var(&o.slowHeader, "slow-header", "`Name: value`, a header that makes the handler slow")
	set.DurationVar(&o.lease, "lease", 0, "how long the server lets an attempt be silent; the slow handler takes longer")
	set.StringVar(&o.errorBody, "error-body", "", "a `payload` that makes the handler answer with an error after it has begun")
	set.Var(&o.errorHeader, "error-header", "`Name: value`, a header that makes the handler answer with an error after it has begun")
	set.Var(&o.earlyHeader, "early-header",
		"`Name: value`, a header that makes the service behind a gateway answer with a 4xx at once, and close with the payload unread")
	set.StringVar(&o.redirectPath, "redirect-path", "",
		"another `path` of the same operation, which the server answers with 307 or 308, such as /payments/")
	set.Var(&o.principalA, "principal-a", "`Name: value`, the header that makes a request one principal's")
	set.Var(&o.principalB, "principal-b", "`Name: value`, the header that makes a request another principal's")
	set.StringVar(&o.serviceURL, "service-url", "", "the `URL` of the service behind the gateway, whose resolver is asked")
	set.StringVar(&o.resolve, "resolve", "", "the `request` by which the gateway asks, such as 'PUT /operations/{operation}'")
	set.StringVar(&o.countURL, "count-url", "", "a GET of this `path` or URL tells how many effects there were")
	set.StringVar(&o.countField, "count-field", "total", "the `field` of the JSON answer that holds that integer; dots go deeper")
}

func (o *options) runFlags(set *flag.FlagSet) {
	set.IntVar(&o.burst, "n", 50, "how many duplicates are sent at once")
	set.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long one answer may take")
	set.DurationVar(&o.wait, "wait", time.Minute, "how long a retry is repeated while the first attempt is in progress")
	set.TextVar(&o.run, "run", regexp.MustCompile(""), "run only the checks that match this `regexp`")
	set.TextVar(&o.skip, "skip", regexp.MustCompile("^$"), "leave out the checks that match this `regexp`")
	set.BoolVar(&o.list, "list", false, "list the checks and what they need")
	set.BoolVar(&o.json, "json", false, "report as JSON")
	set.BoolVar(&o.strict, "strict", false, "a check that is not applicable counts as failed")
}

func help(w io.Writer, set *flag.FlagSet) {
	fmt.Fprintln(w, "go run ./conformance -url http://host -path /payments [flags]")
	fmt.Fprintln(w, "\nChecks an idempotent HTTP operation from outside. It has real effects.")
	set.SetOutput(w)
	set.PrintDefaults()
}

// resolvePattern matches a request that asks a resolver.
var resolvePattern = regexp.MustCompile(`^[A-Z]+ /[^ ]*\{operation\}[^ ]*$`)

func baseURL(flag, text string) (*url.URL, error) {
	if text == "" {
		return nil, fmt.Errorf("-%s is needed, such as http://localhost:8080", flag)
	}
	base, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("-%s %s: a URL such as http://localhost:8080 is needed", flag, text)
	}
	return base, nil
}

// check finds all that is wrong with options taken together.
func (o *options) check() error {
	faults := []error{o.checkPlaces()}
	wrong := func(is bool, text string) {
		if is {
			faults = append(faults, errors.New(text))
		}
	}
	wrong(o.body == o.body2, "-body and -body2 are the same")
	wrong(o.burst < 2, "-n is 2 at least")
	wrong(o.longKey < 64, "-long-key is 64 at least")
	wrong(o.timeout <= 0 || o.wait <= 0, "-timeout and -wait are longer than nothing")
	wrong(o.slow < 0 || o.lease < 0, "-slow and -lease are not negative")
	wrong(o.slow > 0 && o.slow >= o.timeout, "-timeout is not longer than -slow: no slow request could be answered")
	wrong((o.principalA == field{}) != (o.principalB == field{}), "-principal-a and -principal-b belong together")
	wrong(o.principalA != field{} && o.principalA == o.principalB, "-principal-a and -principal-b are the same")
	wrong((o.serviceURL == "") != (o.resolve == ""), "-service-url and -resolve belong together")
	wrong(o.resolve != "" && !resolvePattern.MatchString(o.resolve),
		"-resolve is a method and a path, such as 'PUT /operations/{operation}'")
	wrong(o.issued() && o.tokenURL == "", "-header is the -token-header: -token-url is needed, where the tokens come from")
	return errors.Join(faults...)
}

func (o *options) checkPlaces() error {
	var faults []error
	for _, place := range []struct{ flag, value string }{
		{"path", o.path}, {"token-url", o.tokenURL}, {"redirect-path", o.redirectPath}, {"count-url", o.countURL}, {"policy", o.policy},
	} {
		if place.value == "" && place.flag != "path" {
			continue
		}
		_, err := url.Parse(o.at(place.value))
		if err != nil || place.value == "" || place.value[0] != '/' && !strings.Contains(place.value, "://") {
			faults = append(faults, fmt.Errorf("-%s %s: a path that begins with a slash is needed", place.flag, place.value))
		}
	}
	return errors.Join(faults...)
}

// at is the URL of a path of the server, or of what is a URL already.
func (o *options) at(place string) string {
	if strings.Contains(place, "://") {
		return place
	}
	return o.base.String() + place
}

// issued says whether every key is a token that the server issued.
func (o *options) issued() bool { return strings.EqualFold(o.header, o.tokenHeader) }

func (o *options) choose(all []check) []check {
	var chosen []check
	for _, c := range all {
		if o.run.MatchString(c.name) && !o.skip.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// field is a header field, written "Name: value" on the command line. The zero value is none.
type field struct{ name, value string }

func (f *field) String() string {
	if *f == (field{}) {
		return ""
	}
	return f.name + ": " + f.value
}

// Set reads the field; an empty text is none.
func (f *field) Set(text string) error {
	name, value, found := strings.Cut(text, ":")
	if text != "" && (!found || strings.TrimSpace(name) == "") {
		return errors.New("not of the form 'Name: value'")
	}
	*f = field{strings.TrimSpace(name), strings.TrimSpace(value)}
	return nil
}

// addHeader reads a header of every request.
func (o *options) addHeader(text string) error {
	var one field
	if err := one.Set(text); err != nil || one == (field{}) {
		return errors.Join(err, errors.New("a header is needed"))
	}
	o.extra = append(o.extra, one)
	return nil
}
