package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxBody is how many bytes a request may have. The middleware sees to it, and hands the body on in
// whole.
const maxBody = 4 << 10

// member is a value that a request's JSON object must have: its name, and where it goes.
type member struct {
	name string
	into any
}

// decode reads a body strictly: one JSON object with these members, each once and by its exact
// name, and nothing else. The error is a *fault.
func decode(r *http.Request, members ...member) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return invalid("body", "it did not arrive whole")
	}
	if !utf8.Valid(text) {
		return invalid("body", "not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return invalid("body", "a JSON object belongs here")
	}
	missing := slices.Clone(members)
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return malformed(err)
		}
		name, _ := token.(string) // the decoder takes nothing else for a name
		at := slices.IndexFunc(missing, func(m member) bool { return m.name == name })
		if at < 0 {
			return stranger(name, members)
		}
		if err := decodeValue(decoder, missing[at]); err != nil {
			return err
		}
		missing = slices.Delete(missing, at, at+1)
	}
	return ending(decoder, missing)
}

// decodeValue reads the value of a member. Half of a surrogate pair is refused: the decoder would
// take each for the same character, so that two texts were one.
func decodeValue(decoder *json.Decoder, m member) error {
	var value jsontext.Value
	if err := decoder.Decode(&value); err != nil {
		return malformed(err)
	}
	if !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		return invalid(m.name, "half of a surrogate pair, which is no text")
	}
	if err := json.Unmarshal(value, m.into); err != nil {
		return wrongValue(m.name, err)
	}
	return nil
}

// ending checks that the object ends, that it is all there is, and that nothing is missing.
func ending(decoder *json.Decoder, missing []member) error {
	if _, err := decoder.Token(); err != nil {
		return malformed(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("body", "one JSON object belongs here, and nothing after it")
	}
	if len(missing) > 0 {
		return invalid(missing[0].name, "missing")
	}
	return nil
}

// stranger is the error for a member that is not expected, or not any more.
func stranger(name string, members []member) error {
	if slices.ContainsFunc(members, func(m member) bool { return m.name == name }) {
		return invalid(name, "given more than once")
	}
	var names []string
	for _, m := range members {
		names = append(names, m.name)
	}
	return invalid("body", "an unknown member; this route takes "+strings.Join(names, ", "))
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return invalid("body", "not one JSON object: "+err.Error())
}

func wrongValue(name string, err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return malformed(err)
	case wrong.Type.Kind().String() == "int64":
		return invalid(name, "not a whole number")
	}
	return invalid(name, "not a "+wrong.Type.Kind().String())
}

var (
	accountForm   = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)
	referenceForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,60}$`)
)

// maxAmount is the most that one payment or transfer may be, in cents.
const maxAmount = 1_000_000_000

func checkAmount(amount int64) error {
	if amount < 1 || amount > maxAmount {
		return invalid("amount", "1 to 1000000000 cents")
	}
	return nil
}

func checkAccount(name, id string) error {
	if !accountForm.MatchString(id) {
		return invalid(name, "1 to 40 characters of a–z 0–9 _ -")
	}
	return nil
}

// paymentOf reads the body of POST /payments.
func paymentOf(r *http.Request) (paymentOrder, error) {
	var order paymentOrder
	err := decode(r, member{"amount", &order.Amount}, member{"to", &order.To}, member{"reference", &order.Reference})
	if err == nil {
		err = checkAmount(order.Amount)
	}
	if err == nil {
		err = checkAccount("to", order.To)
	}
	if err == nil && !referenceForm.MatchString(order.Reference) {
		err = invalid("reference", "1 to 60 characters of A–Z a–z 0–9 . _ : -, by which you find the payment again")
	}
	return order, err
}

// transferOf reads the body of POST /transfers.
func transferOf(r *http.Request) (transferOrder, error) {
	var order transferOrder
	err := decode(r, member{"from", &order.From}, member{"to", &order.To}, member{"amount", &order.Amount})
	if err == nil {
		err = checkAmount(order.Amount)
	}
	if err == nil {
		err = checkAccount("from", order.From)
	}
	if err == nil {
		err = checkAccount("to", order.To)
	}
	if err == nil && order.From == order.To {
		err = invalid("to", "another account than the one that pays")
	}
	return order, err
}
