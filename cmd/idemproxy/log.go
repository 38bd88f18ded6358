package main

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"idemproxy/internal/config"
)

// newLogger writes to w as the log section says.
func newLogger(cfg config.LogConfig, w io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(string(cfg.Level))
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	lines := zap.NewProductionEncoderConfig()
	lines.TimeKey = "time"
	lines.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(lines)
	if cfg.Format == config.FormatConsole {
		lines.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		lines.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(lines)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), nil
}
