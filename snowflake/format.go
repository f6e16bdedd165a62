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
	FormatDecimal Format = "decimal" // ID.String
	FormatPadded  Format = "padded"  // ID.Padded
	FormatBase36  Format = "base36"  // ID.Base36
	FormatBase62  Format = "base62"  // ID.Base62
	FormatBase32  Format = "base32"  // ID.Base32
	FormatTimed   Format = "timed"   // ID.Timed
)

// Formats lists them all.
func Formats() []Format {
	return []Format{FormatDecimal, FormatPadded, FormatBase36, FormatBase62, FormatBase32, FormatTimed}
}

// ParseFormat finds a format by its name, "" being Decimal. The error lists the names.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return FormatDecimal, nil
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
	case FormatDecimal, "":
		return strconv.AppendInt(dst, int64(id), 10), nil
	case FormatPadded:
		return id.appendPadded(dst, style.width())
	case FormatBase36:
		return appendDigits(dst, id, base36, 0), nil
	case FormatBase62:
		return appendDigits(dst, id, base62, 0), nil
	case FormatBase32:
		return appendDigits(dst, id, crockford, 0), nil
	case FormatTimed:
		layout, epoch := style.origin()
		return id.appendTimed(dst, layout, epoch)
	}
	return dst, fmt.Errorf("%w: format %.40q", ErrSyntax, string(f))
}

// Parse reads what Append writes with the same style; Base32 as ParseBase32 does.
func (f Format) Parse(text string, style Style) (ID, error) {
	switch f {
	case FormatDecimal, "":
		return Parse(text)
	case FormatPadded:
		return ParsePadded(text, style.width())
	case FormatBase36:
		return ParseBase36(text)
	case FormatBase62:
		return ParseBase62(text)
	case FormatBase32:
		return ParseBase32(text)
	case FormatTimed:
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
