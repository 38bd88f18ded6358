package dedup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as plain digits or with a unit: B, KiB, MiB or
// GiB (powers of 1024).
type Size int64

// Binary units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

// sizeUnits is ordered from the longest suffix to the shortest, so that "KiB" is not
// taken for "B".
var sizeUnits = []struct {
	suffix string
	bytes  Size
}{{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"B", 1}}

// ParseSize reads a Size. It refuses negative numbers, fractions, unknown units and
// what does not fit 63 bits.
func ParseSize(s string) (Size, error) {
	digits, unit := s, Size(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || Size(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("not a size: use whole bytes or a unit, such as 65536, 64KiB, 1MiB or 2GiB")
	}
	return Size(n) * unit, nil
}

// UnmarshalText is ParseSize for decoders.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := ParseSize(string(text))
	if err == nil {
		*s = n
	}
	return err
}

// MarshalText writes a Size with the largest unit that divides it.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is the Size with the largest unit that divides it, such as 64KiB.
func (s Size) String() string {
	switch {
	case s == 0:
		return "0"
	case s%GiB == 0:
		return fmt.Sprintf("%dGiB", int64(s/GiB))
	case s%MiB == 0:
		return fmt.Sprintf("%dMiB", int64(s/MiB))
	case s%KiB == 0:
		return fmt.Sprintf("%dKiB", int64(s/KiB))
	default:
		return strconv.FormatInt(int64(s), 10)
	}
}
