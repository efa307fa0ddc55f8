"""The values Berth speaks in: ids, amounts, commands, events, rejections. No behaviour but validity."""
