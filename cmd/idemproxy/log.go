package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"idemproxy/internal/config"
)

// newLogger writes to w as the log section says. The level may be changed later.
func newLogger(cfg config.LogConfig, w io.Writer) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevelAt(levelOf(cfg))
	lines := zap.NewProductionEncoderConfig()
	lines.TimeKey = "time"
	lines.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(lines)
	if cfg.Format == config.FormatConsole {
		lines.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		lines.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(lines)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), level
}

// levelOf is zap's name for the level.
func levelOf(cfg config.LogConfig) zapcore.Level {
	level, err := zapcore.ParseLevel(string(cfg.Level))
	if err != nil { // no configuration that was loaded has another level
		return zapcore.InfoLevel
	}
	return level
}
