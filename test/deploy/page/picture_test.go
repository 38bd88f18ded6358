package page

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	pictureFile = "../../../docs/control-page.png"
	pictureWide = 1100
	pictureMost = 150 << 10 // bytes
)

// The documents have a picture of the page, made here: UPDATE_GOLDEN=1 go test ./page -run Picture
func TestPicture(t *testing.T) {
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(pictureFile, takePicture(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := png.DecodeConfig(bytes.NewReader(raw)); err != nil || c.Width != pictureWide || len(raw) > pictureMost {
		t.Errorf("%d bytes, %d wide (%v); want %d wide, %d bytes at most", len(raw), c.Width, err, pictureWide, pictureMost)
	}
	text, err := os.ReadFile("../../../docs/control-api.md")
	if err != nil || !strings.Contains(string(text), "(control-page.png)") {
		t.Errorf("docs/control-api.md does not show it (%v)", err)
	}
}

// takePicture takes it under traffic that comes and goes, after most of a minute.
func takePicture(t *testing.T) []byte {
	u := newUpstream(t)
	p := start(t, setup{upstream: u.URL, routes: strings.Join(strings.Split(routes, "\n")[:3], "\n")})
	b := open(t, p.control, "/", refused)
	b.signIn()
	p.sends(t, 201, "/api/payments", "pay", "{}")
	end := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(60+40*(i/50%3)) * time.Millisecond):
			}
			p.sends(t, 201, "/api/payments", fmt.Sprint("pay-", i), "{}")
			switch i % 10 {
			case 0, 3:
				p.sends(t, 201, "/api/payments", fmt.Sprint("pay-", i), "{}")
			case 5:
				p.sends(t, 201, "/api/orders/1", "", "{}")
			case 6:
				p.sends(t, 422, "/api/payments", "pay", "[]")
			case 1, 7, 8:
				p.sends(t, 201, "/api/orders/1", fmt.Sprint("order-", i), "{}")
			}
		}
	})
	up := func(seconds int) string {
		return fmt.Sprintf("Number(/up (\\d+) second/.exec(document.querySelector('#build').textContent)?.[1] ?? 60) >= %d", seconds)
	}
	b.until(up(30))
	p.sends(t, 502, "/api/payments", "drop-1", "{}")
	b.until(up(50))
	p.hangs(t, u, "/api/payments", "hang-1")
	b.until("document.querySelectorAll('#keys li').length === 2")
	b.types("#key", "drop-1")
	b.types("input[name=X-Account]", "acme")
	b.click("#by-key button")
	b.found("unknown")
	js[bool](b, "document.activeElement.blur() || true")
	b.sized(pictureWide, 700)
	raw := b.shot("picture")
	close(end)
	all.Wait()
	return fewColours(t, raw)
}

// fewColours makes a picture of flat colours small: the commonest 256 are enough.
func fewColours(t *testing.T, raw []byte) []byte {
	full, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	bounds, often := full.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			often[full.At(x, y)]++
		}
	}
	var palette color.Palette
	for c := range often {
		palette = append(palette, c)
	}
	slices.SortFunc(palette, func(a, b color.Color) int { return often[b] - often[a] })
	small := image.NewPaletted(bounds, palette[:min(len(palette), 256)])
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.Set(x, y, full.At(x, y))
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
