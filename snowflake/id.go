package snowflake

import (
	"database/sql/driver"
	"fmt"
	"strconv"
)

// ID is a Snowflake id: a whole number from 0 to 2^63-1. In JSON and as text it is a decimal
// string, since JavaScript loses the digits of numbers above 2^53; in a database it is a 64-bit
// integer, and read from a text column as well. A negative one is no id: it is an error.
type ID int64 //nolint:recvcheck // what reads into an id needs a pointer, what writes one must not

// maxExact is the largest number that JavaScript, and other software with JSON floats, keeps exact.
const maxExact = 1<<53 - 1

// String writes the id in decimal.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// Parse reads what String writes, and nothing else: no sign, no leading zero, no blank. ErrSyntax,
// or ErrRange for more than 2^63-1.
func Parse(text string) (ID, error) {
	return parseDigits(text, decimal, true)
}

func (id ID) check() error {
	if id < 0 {
		return fmt.Errorf("%w: %d is negative", ErrRange, int64(id))
	}
	return nil
}

// MarshalText writes the id in decimal.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), id.check() }

// UnmarshalText reads an id as Parse does.
func (id *ID) UnmarshalText(text []byte) error { return id.set(Parse(string(text))) }

// MarshalJSON writes the id as a string.
func (id ID) MarshalJSON() ([]byte, error) {
	text := append(make([]byte, 0, 21), '"')
	text = strconv.AppendInt(text, int64(id), 10)
	return append(text, '"'), id.check()
}

// UnmarshalJSON reads an id from a string, as Parse does, or from a whole number without fraction
// or exponent up to 2^53-1. Larger numbers are refused: their writer may have rounded them before.
// null changes nothing, as everywhere in encoding/json.
func (id *ID) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return id.set(Parse(string(text[1 : len(text)-1])))
	}
	number, err := Parse(string(text))
	if err == nil && number > maxExact {
		err = fmt.Errorf("%w: the number %d is above 2^53-1 and may have been rounded: write ids as strings", ErrRange, number)
	}
	return id.set(number, err)
}

// Scan reads a 64-bit integer, or text as Parse does. NULL is refused; sql.Null[ID] takes it.
func (id *ID) Scan(source any) error {
	switch value := source.(type) {
	case int64:
		return id.set(ID(value), ID(value).check())
	case string:
		return id.set(Parse(value))
	case []byte:
		return id.set(Parse(string(value)))
	}
	return fmt.Errorf("%w: a %T", ErrSyntax, source)
}

// Value gives a database the id as a 64-bit integer.
func (id ID) Value() (driver.Value, error) { return int64(id), id.check() }

// set takes what was read if it was read well.
func (id *ID) set(value ID, err error) error {
	if err == nil {
		*id = value
	}
	return err
}
