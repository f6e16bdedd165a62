package snowflake

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Format is a way to write an id, by its name in the HTTP interface. The zero value is Decimal.
type Format string

// The formats.
const (
	Decimal Format = "decimal" // ID.String
	Padded  Format = "padded"  // ID.Padded
	Base36  Format = "base36"  // ID.Base36
	Base62  Format = "base62"  // ID.Base62
	Base32  Format = "base32"  // ID.Base32
	Timed   Format = "timed"   // ID.Timed
)

// Formats lists them all.
func Formats() []Format { return []Format{Decimal, Padded, Base36, Base62, Base32, Timed} }

// ParseFormat finds a format by its name, "" being Decimal. The error lists the names.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return Decimal, nil
	}
	if formats := Formats(); !slices.Contains(formats, Format(name)) {
		return "", fmt.Errorf("%w: format %.40q: one of %s", ErrSyntax, name, strings.Trim(fmt.Sprint(formats), "[]"))
	}
	return Format(name), nil
}

// DefaultWidth is the width of a padded id where none is given: enough for every id.
const DefaultWidth = 19

// Style is the parameters of some formats. Others ignore it.
type Style struct {
	Width  int       // of Padded, 1 to MaxWidth; 0 = DefaultWidth
	Layout Layout    // of Timed; zero = DefaultLayout
	Epoch  time.Time // of Timed; zero = DefaultEpoch
}

func (s Style) width() int {
	if s.Width == 0 {
		return DefaultWidth
	}
	return s.Width
}

func (s Style) origin() (Layout, time.Time) { return origin(s.Layout, s.Epoch) }

// Append appends the id's text to dst. It allocates nothing if dst has room. What cannot be
// written, a negative id too, is refused with ErrRange, and then dst is returned as it was.
func (f Format) Append(dst []byte, id ID, style Style) ([]byte, error) {
	if err := id.check(); err != nil {
		return dst, err
	}
	switch f {
	case Decimal, "":
		return strconv.AppendInt(dst, int64(id), 10), nil
	case Padded:
		return id.appendPadded(dst, style.width())
	case Base36:
		return appendDigits(dst, id, base36, 0), nil
	case Base62:
		return appendDigits(dst, id, base62, 0), nil
	case Base32:
		return appendDigits(dst, id, crockford, 0), nil
	case Timed:
		layout, epoch := style.origin()
		return id.appendTimed(dst, layout, epoch)
	}
	return dst, fmt.Errorf("%w: format %.40q", ErrSyntax, string(f))
}

// Parse reads what Append writes with the same style; Base32 as ParseBase32 does.
func (f Format) Parse(text string, style Style) (ID, error) {
	switch f {
	case Decimal, "":
		return Parse(text)
	case Padded:
		return ParsePadded(text, style.width())
	case Base36:
		return ParseBase36(text)
	case Base62:
		return ParseBase62(text)
	case Base32:
		return ParseBase32(text)
	case Timed:
		layout, epoch := style.origin()
		return ParseTimed(text, layout, epoch)
	}
	return 0, fmt.Errorf("%w: format %.40q", ErrSyntax, string(f))
}

var defaultLayout = sync.OnceValue(func() Layout { return MustLayout(DefaultLayout) })

// origin puts the defaults in the place of zero values.
func origin(layout Layout, epoch time.Time) (Layout, time.Time) {
	if layout == (Layout{}) {
		layout = defaultLayout()
	}
	if epoch.IsZero() {
		epoch = DefaultEpoch
	}
	return layout, epoch
}
