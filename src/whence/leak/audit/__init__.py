"""What an audit measures (`auditing`), of which models (`targets`, `own_model`, `pretrained`), and its verdict."""
